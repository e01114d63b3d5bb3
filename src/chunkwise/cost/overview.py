"""The figures of `chunkwise memory`, as plain data for a table or a JSON object."""

from typing import Any

from chunkwise.cost import memory
from chunkwise.cost.shape import ModelShape

CHUNK = 2048  # what the "cut" columns cut a prompt into


def overview(
    model: str,
    shape: ModelShape,
    total: int | None,
    fraction: float,
    tp: int,
    device: memory.Device = "gpu",
) -> dict[str, Any]:
    """Return everything that the command shows. Usage: `overview("m", shape, None, 0.92, 1)`."""
    return {
        "model": model,
        "dtype": shape.dtype,
        "parameters": shape.weights,
        "weight_bytes": memory.weight_bytes(shape, tp),
        "kv_bytes_per_token": memory.kv_bytes_per_token(shape, tp=tp),
        "memory_bytes": total,
        "fraction": fraction,
        "tensor_parallel": tp,
        "device": device,
        "chunk": CHUNK,
        "budgets": [
            _budget(shape, budget, total, fraction, tp, device) for budget in memory.BUDGETS
        ],
        "lengths": [_length(shape, tokens, tp) for tokens in memory.LENGTHS],
        "notes": _notes(shape, total, device),
    }


def _budget(
    shape: ModelShape,
    budget: int,
    total: int | None,
    fraction: float,
    tp: int,
    device: memory.Device,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "budget": budget,
        "step_bytes": memory.activation_bytes(shape, budget, tp)
        + memory.workspace_bytes(shape, budget, tp),
        "scoring_bytes": memory.scoring_bytes(shape, budget, device=device),
    }
    if total is not None:
        if device == "cpu":
            left = memory.cpu_pool(shape, total, fraction)
        else:
            left = memory.pool(shape, total, fraction, budget, tp=tp)
        row |= {"pool_bytes": left.bytes, "pool_tokens": left.tokens}
    return row


def _length(shape: ModelShape, tokens: int, tp: int) -> dict[str, Any]:
    eager, fused = memory.eager_attention_bytes, memory.fused_attention_bytes
    return {
        "tokens": tokens,
        "kv_bytes": tokens * memory.kv_bytes_per_token(shape, tp=tp),
        "eager_whole": eager(shape, tokens, tokens),
        "eager_cut": eager(shape, CHUNK, tokens),
        "fused_whole": fused(shape, tokens, tokens),
        "fused_cut": fused(shape, CHUNK, tokens),
    }


def _notes(shape: ModelShape, total: int | None, device: memory.Device) -> list[str]:
    notes = []
    if total is None:
        notes.append("Give --memory, such as --memory 80GiB, to see the KV pool that is left.")
    elif device == "cpu":
        notes.append(
            "The CPU engine takes its whole share at start and measures no step: what a step "
            "needs comes out of the memory beside the share."
        )
    else:
        notes.append(
            "The pool leaves out what only the machine knows: the driver's context and CUDA "
            "graphs, often 1 to 3 GiB."
        )
    if shape.windowed_layers:
        notes.append(
            f"{shape.windowed_layers} of {shape.layers} layers look back over a window only: "
            f"their KV cache is counted whole here, so long prompts take less than shown."
        )
    return notes
