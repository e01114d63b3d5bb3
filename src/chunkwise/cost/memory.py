"""What a model's memory goes to, in bytes, from its shape and the settings alone.

The budget (tokens of a step) decides activations, workspace and the logits of
prompt scoring; the context decides the KV cache; neither decides the other.
Invariant: every function is arithmetic on a `ModelShape`, so that the command,
the offline engine and the tests say the same number.
"""

from dataclasses import dataclass
from typing import Literal

from chunkwise.cost.shape import ModelShape
from chunkwise.errors import UserMistake
from chunkwise.sizes import say_bytes

Device = Literal["gpu", "cpu"]

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
LENGTHS = (47, 500, 2_156, 4_096, 8_192, 32_768, 131_072)
WHY_FUSED = (
    "Fused attention (what vLLM uses, but for sparse indexers) walks over the context in small "
    "tiles and keeps one running sum per token and head, so no tokens x context matrix ever exists "
    "and cutting the prompt saves none of it; an eager implementation writes that matrix out."
)
# Token ids, positions, slot mapping and request indices that the runner keeps a token.
RUNNER_BYTES_A_TOKEN = 28
# What a process of vLLM's CPU build holds beside the model: libraries, and what its allocator
# keeps. Read from /proc at the moment the pool is sized (0.32): 900 MiB to 1,025 MiB, from start
# to start of one model too. Chosen on the models of benchmarks/memory.py; for others the pool
# comes out up to 5% too large (benchmarks/memory_held_out.py).
CPU_PROCESS_BYTES = 960 * 2**20


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV cache that remains beside the rest."""

    bytes: int
    tokens: int


def kv_bytes_per_token(shape: ModelShape, kv_dtype_bytes: int | None = None, tp: int = 1) -> int:
    """Bytes that one token of context keeps on each device."""
    # Heads are spread over devices until there is one each; MLA's vector is on all of them.
    numbers = shape.kv_numbers if shape.mla else -(-shape.kv_numbers // min(tp, shape.kv_heads))
    return shape.layers * numbers * (kv_dtype_bytes or shape.dtype_bytes)


def weight_bytes(shape: ModelShape, tp: int = 1) -> int:
    """Bytes of the weights on each device, in the model's own dtype."""
    return shape.weights * shape.dtype_bytes // tp


def activation_bytes(shape: ModelShape, budget: int, tp: int = 1) -> int:
    """Bytes that a step of `budget` tokens holds at its widest point, one layer at a time."""
    width = shape.head_dim * (shape.heads + 2 * shape.kv_heads) // tp
    attention = width + shape.heads * shape.head_dim // tp
    mlp = 3 * shape.inner // tp  # gate and up side by side, and their product
    # The residual stream and the layer's input live beside either.
    return budget * (2 * shape.hidden + max(attention, mlp)) * shape.dtype_bytes


def workspace_bytes(shape: ModelShape, budget: int, tp: int = 1) -> int:
    """Bytes that fused attention and the runner keep for a step of `budget` tokens."""
    return budget * (4 * max(1, shape.heads // tp) + RUNNER_BYTES_A_TOKEN)


def scoring_bytes(
    shape: ModelShape, budget: int, longest: int | None = None, device: Device = "gpu"
) -> int:
    """Peak bytes of logits when prompts are scored (`prompt_logprobs`), which nobody profiles.

    vLLM scores one request of the step after another: its logits in the model's
    dtype, their log-softmax in float32, and the previous request's log-softmax,
    not yet given back. Alone in a step, a 16-bit model takes six bytes a token
    and vocabulary entry.
    """
    tokens = min(budget, longest or budget)
    before = min(budget - tokens, tokens)
    each = shape.dtype_bytes + 4
    if device == "cpu" and shape.dtype_bytes < 4:
        each += 4  # torch widens the input first where no kernel does both
    return shape.vocab * (tokens * each + before * 4)


def largest_scoring_budget(
    shape: ModelShape, limit: int, longest: int | None = None, device: Device = "gpu"
) -> int:
    """Return the largest budget whose step fits `limit` when prompts are scored; 0 for none."""
    low, high = 0, 2**21
    while low < high:
        middle = (low + high + 1) // 2
        if step_bytes(shape, middle, longest, device) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def step_bytes(
    shape: ModelShape, budget: int, longest: int | None = None, device: Device = "gpu"
) -> int:
    """Peak bytes of a step that scores prompts: its logits, activations and workspace."""
    # The widest activations are gone when logits are computed; the final hidden states are not.
    forward = activation_bytes(shape, budget) + workspace_bytes(shape, budget)
    hidden = 2 * budget * shape.hidden * shape.dtype_bytes
    return max(forward, scoring_bytes(shape, budget, longest, device) + hidden)


def refuse_budget(
    shape: ModelShape,
    budget: int,
    limit: int,
    longest: int | None = None,
    device: Device = "gpu",
) -> None:
    """Raise a sentence if scoring prompts with this budget exceeds `limit`, naming the right one.

    Usage: `refuse_budget(shape, 8192, 4 * 2**30)`
    """
    needed = step_bytes(shape, budget, longest, device)
    if needed <= limit:
        return
    best = largest_scoring_budget(shape, limit, longest, device)
    advice = f"set max_num_batched_tokens to {best} or less" if best else "raise the limit"
    raise UserMistake(
        f"Scoring prompts with max_num_batched_tokens={budget} takes up to {say_bytes(needed)} "
        f"a step ({shape.vocab:,} vocabulary entries for each token), over the limit of "
        f"{say_bytes(limit)}: {advice}."
    )


def eager_attention_bytes(shape: ModelShape, chunk: int, context: int) -> int:
    """Bytes of one layer's scores if attention wrote them out: chunk x context a head."""
    return shape.heads * min(chunk, context) * context * shape.dtype_bytes


def fused_attention_bytes(shape: ModelShape, chunk: int, context: int) -> int:
    """Bytes that fused attention keeps for the same: one sum a token and head."""
    return 4 * shape.heads * min(chunk, context)


def pool_from_bytes(
    shape: ModelShape, size: int, block: int = 16, kv_dtype_bytes: int | None = None, tp: int = 1
) -> Pool:
    """Return the KV cache that `size` bytes hold, in whole blocks as vLLM allots it."""
    page = block * kv_bytes_per_token(shape, kv_dtype_bytes, tp)
    blocks = max(0, size) // page
    return Pool(blocks * page, blocks * block)


def pool(
    shape: ModelShape,
    total: int,
    fraction: float,
    budget: int,
    seqs: int = 256,
    block: int = 16,
    other: int = 0,
    kv_dtype_bytes: int | None = None,
    tp: int = 1,
) -> Pool:
    """Return the KV cache left of a device's memory. Usage: `pool(shape, 80 * 2**30, 0.92, 8192)`.

    `other` is what the process holds beside weights and a step: libraries, graphs.
    """
    step = activation_bytes(shape, budget, tp) + workspace_bytes(shape, budget, tp)
    sampling = seqs * shape.vocab * (shape.dtype_bytes + 4)
    left = int(total * fraction) - weight_bytes(shape, tp) - max(step, sampling) - other
    return pool_from_bytes(shape, left, block, kv_dtype_bytes, tp)


def cpu_pool(shape: ModelShape, total: int, fraction: float, block: int = 128) -> Pool:
    """Return the KV cache that vLLM's CPU engine makes. Usage: `cpu_pool(shape, 64 * GIB, 0.5)`.

    It measures its own resident memory after loading and no step at all; a tied
    output matrix is there twice, because it is packed for multiplication.
    """
    packed = shape.vocab * shape.hidden * shape.dtype_bytes if shape.tied else 0
    left = int(total * fraction) - weight_bytes(shape) - packed - CPU_PROCESS_BYTES
    return pool_from_bytes(shape, left, block)
