"""Seconds of a step on a GPU that is not here, from kernel times measured on real ones.

The tables are those of `aiconfigurator-core` (extra `plan`). They are read once,
at loading, into monotone curves over a step's sums, so that a price takes a few
microseconds and never falls when work is added; the raw tables have dips. Host
and graphs are terms of their own (`graphs.py`). Invariant: what was estimated
rather than measured, and how far the curves are from the tables, is in the
provenance of every `SiliconCost`.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chunkwise.cost.curves import CurveSum, envelope
from chunkwise.cost.gpu import Extent, SiliconCost
from chunkwise.cost.graphs import Graphs, StepTerms, default_capture_limit
from chunkwise.cost.memory import Pool
from chunkwise.cost.step import Provenance
from chunkwise.errors import EngineTrouble, UserMistake

MISSING = "GPU costs need the extra `plan`: run `pip install chunkwise[plan]`."
TOKENS = sorted(
    {1, 2, 4, *range(8, 65, 8), *range(64, 1025, 64), *range(1024, 8193, 256)}
    | {size + 1 for size in (128, 256, 512, 1024, 2048, 4096)}
    | {12_288, 16_384, 24_576, 32_768, 65_536}
)
REQUESTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTEXTS = (0, 512, 2048, 8192, 32_768, 131_072)
# Where the fitted lines may bend: in prefill tokens and in pairs of a chunk's attention...
CHUNK_BENDS = ((0, 256, 1024, 4096, 16_384), (0, 2e5, 1e6, 4e6, 1.6e7, 6.4e7, 2.56e8))
# ... and in decodes and the context that they read.
DECODE_BENDS = ((0, 8, 32, 128, 512), (0, 4e3, 1.6e4, 6.4e4, 2.56e5, 1e6, 4e6))
MOST_CHUNK_TOKENS = 32_768
MOST_DECODE_CONTEXT = 2**24
# Here the tables have small matrix products scaled by blocks many times slower than bf16: no
# server would use them so. Plain FP8's are the nearest that were measured.
PLAIN_BLOCKS = ("b200_", "b300_", "gb200", "gb300")


def load(
    model: str,
    system: str,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    weights: str | None = None,
    kv_cache: str | None = None,
    terms: StepTerms | None = None,
) -> SiliconCost:
    """Read the tables for a model on a GPU. Usage: `load("Qwen/Qwen3-8B", "h100_sxm")`.

    `model` is a shipped name or a local directory with a config.json; `weights`
    and `kv_cache` name quantisations (`fp8`, `fp8_static`, `nvfp4` …; default: as
    the config says). Experts are spread over the tensor-parallel devices.
    """
    config = _config(model)
    _check_system(system)
    terms = terms or StepTerms(capture_limit=default_capture_limit(system))
    plain = weights is None and system.startswith(PLAIN_BLOCKS) and _scaled_by_blocks(config)
    options = _options(tensor_parallel, pipeline_parallel, weights, kv_cache)
    if plain:
        options["gemm_quant_mode"] = "fp8"
    layers = int(config.get("num_hidden_layers") or 0)
    provenance = Provenance("silicon", model, system, tensor_parallel, pipeline_parallel)
    try:
        with _remarks() as remarks:
            tables = _Tables(model, system, options)
            cost = _read(tables, provenance, terms, Graphs(terms, layers))
            off = _distance(cost, tables)
    except Exception as error:  # their errors have many types; all mean that rows are missing
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise EngineTrouble(f"No kernel times for {model} on {system}: {reason}.") from None
    notes = (*tables.notes(), *_low_fidelity(remarks, tables.names))
    if plain:
        notes += ("matrix products in FP8 scaled by blocks are priced as plain FP8",)
    if pipeline_parallel > 1:
        notes += (f"one pass through all {pipeline_parallel} stages; as many batches run at once",)
    notes += (f"curves within {off:.1%} (median) of the tables",)
    provenance = replace(provenance, engine=tables.version, notes=notes)
    return replace(cost, table_error=off, provenance=provenance)


def _read(
    tables: "_Tables", provenance: Provenance, terms: StepTerms, graphs: Graphs
) -> SiliconCost:
    return SiliconCost(
        provenance=provenance,
        terms=terms,
        graphs=graphs,
        compute=envelope(TOKENS, tables.compute),
        exchange=envelope(TOKENS, tables.exchange),
        logits=envelope(REQUESTS, tables.logits),
        chunk_attention=_fit_chunks(tables),
        decode_attention=_fit_decodes(tables),
        seen=Extent(
            TOKENS[-1],
            MOST_CHUNK_TOKENS * (CONTEXTS[-1] + MOST_CHUNK_TOKENS / 2),
            MOST_DECODE_CONTEXT,
        ),
        table_error=0.0,
    )


def kv_pool(
    model: str,
    system: str,
    tensor_parallel: int = 1,
    fraction: float = 0.92,
    budget: int = 8192,
    seqs: int = 256,
) -> Pool:
    """Return the KV cache that aiconfigurator expects each device to have left."""
    _config(model)
    _check_system(system)
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    try:
        with _remarks():
            found = estimate_kv_cache(
                model,
                system,
                "vllm",
                "current",
                max_num_tokens=budget,
                max_batch_size=seqs,
                memory_fraction_kind="of_total",
                memory_fraction_value=fraction,
                **_options(tensor_parallel, 1, None, None),
            )
    except ValueError as error:
        if "no KV budget" in str(error):
            return Pool(0, 0)
        raise EngineTrouble(f"No KV estimate for {model} on {system}: {error}.") from None
    return Pool(int(found["total_kv_size_bytes"]), int(found["total_kv_size_tokens"]))


def device_memory(system: str, devices: int = 1) -> tuple[int, int]:
    """Return a GPU's bytes, and those of them that driver, libraries and exchange hold."""
    _check_system(system)
    import yaml

    found = yaml.safe_load((_home() / "systems" / f"{system}.yaml").read_text())
    exchange = found["misc"]["nccl_mem"]
    nearest = min((size for size in exchange if size >= devices), default=max(exchange))
    return int(found["gpu"]["mem_capacity"]), int(found["misc"]["other_mem"] + exchange[nearest])


def config_file(model: str) -> Path:
    """Return the config of a shipped name or a local directory."""
    local = Path(model).expanduser() / "config.json"
    shipped = _home() / "model_configs" / f"{model.replace('/', '--')}_config.json"
    for file in (local, shipped):
        if file.is_file():
            return file
    raise UserMistake(
        f"There are no GPU costs for {model}: give a local model directory or a shipped name "
        f"such as Qwen/Qwen3-8B."
    )


def systems() -> list[str]:
    """Return the names of the GPUs that have kernel times for vLLM."""
    from aiconfigurator_core.sdk.perf_database import get_version_slots

    names = sorted(file.stem for file in (_home() / "systems").glob("*.yaml"))
    return [name for name in names if get_version_slots(name, "vllm")]


class _Tables:
    """The estimator of one model on one GPU, asked operation by operation."""

    def __init__(self, model: str, system: str, options: dict[str, Any]):
        from aiconfigurator_core.sdk.engine import EngineHandle, compile_engine
        from aiconfigurator_core.sdk.perf_database import get_version_slots

        self._engine = EngineHandle(compile_engine(model, system, "vllm", **options))
        self.version = str((get_version_slots(system, "vllm") or {}).get("current", ""))
        chunk = _split(
            lambda i, p: self._engine.evaluate_context_ops([i], batch_size=1, s=512, prefix=p)
        )
        decode = _split(
            lambda i, p: self._engine.evaluate_generation_ops([i], batch_size=8, s=512 + p)
        )
        self._chunk, self._decode = chunk, decode
        self.names = {*chunk.sources, *decode.sources}

    def compute(self, tokens: int) -> float:
        return max(
            self._context(self._chunk.rest, tokens), self._generation(self._decode.rest, tokens)
        )

    def exchange(self, tokens: int) -> float:
        return max(
            self._context(self._chunk.exchange, tokens),
            self._generation(self._decode.exchange, tokens),
        )

    def logits(self, requests: int) -> float:
        return self._context(self._chunk.logits, requests, x=requests)

    def chunk_attention(self, chunks: int, tokens: int, context: int) -> float:
        return self._context(self._chunk.attention, tokens, context, chunks)

    def decode_attention(self, decodes: int, context: int) -> float:
        return self._generation(self._decode.attention, decodes, context)

    def notes(self) -> Iterator[str]:
        for word, kinds in (("estimated", {"empirical", "sol"}), ("partly estimated", {"mixed"})):
            both = {**self._chunk.sources, **self._decode.sources}
            names = sorted({_plain(name) for name, source in both.items() if source in kinds})
            if names:
                yield f"{word}, not measured: {', '.join(names)}"

    def _context(
        self, ops: list[int], tokens: int, context: int = 0, chunks: int = 1, x: int | None = None
    ) -> float:
        if not ops:
            return 0.0
        found = self._engine.evaluate_context_ops(
            ops, batch_size=chunks, s=tokens, prefix=context, x=x
        )
        return sum(item[1] for item in found) / 1000

    def _generation(self, ops: list[int], decodes: int, context: int = 1) -> float:
        if not ops:
            return 0.0
        found = self._engine.evaluate_generation_ops(ops, batch_size=decodes, s=context)
        return sum(item[1] for item in found) / 1000


@dataclass(frozen=True, slots=True)
class _Split:
    attention: list[int]  # operations whose time depends on the context
    exchange: list[int]
    logits: list[int]
    rest: list[int]
    sources: dict[str, str]  # name: silicon, mixed, empirical or sol


def _split(evaluate: Callable[[int, int], list[Any]]) -> _Split:
    split = _Split([], [], [], [], {})
    for index in range(1000):
        try:
            [(name, seconds, _, source)] = evaluate(index, 0)
        except ValueError:
            break  # past the last operation
        split.sources[name] = source
        if evaluate(index, 32_768)[0][1] != seconds:
            split.attention.append(index)
        elif "logits" in name:
            split.logits.append(index)
        elif re.search(r"_ar(_|$)|allreduce|dispatch|p2p", name):
            split.exchange.append(index)
        else:
            split.rest.append(index)
    return split


def _fit_chunks(tables: _Tables) -> CurveSum:
    points = [
        (chunks, tokens, context)
        for chunks in (1, 2, 4, 8, 16, 32)
        for tokens in (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
        for context in CONTEXTS
        if chunks * tokens <= MOST_CHUNK_TOKENS
    ]
    sums = np.asarray([(b * t, b * t * (c + t / 2)) for b, t, c in points], dtype=np.float64)
    values = np.asarray([tables.chunk_attention(*point) for point in points])
    rest = np.asarray([tables.compute(b * t) + tables.exchange(b * t) for b, t, _ in points])
    # Relative to the step that the attention is part of: that is what people wait for. Most
    # steps carry one chunk or two, so those count for more.
    weights = 1 / (values + rest) / np.sqrt([chunks for chunks, _, _ in points])
    return CurveSum.fit(sums, values, weights, CHUNK_BENDS)


def _fit_decodes(tables: _Tables) -> CurveSum:
    points = [
        (decodes, context)
        for decodes in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
        for context in (1, 128, 512, 2048, 8192, 32_768, 131_072)
        if decodes * context <= MOST_DECODE_CONTEXT
    ]
    sums = np.asarray([(n, n * c) for n, c in points], dtype=np.float64)
    values = np.asarray([tables.decode_attention(*point) for point in points])
    rest = np.asarray([tables.compute(n) + tables.exchange(n) for n, _ in points])
    return CurveSum.fit(sums, values, 1 / (values + rest), DECODE_BENDS)


def _distance(cost: SiliconCost, tables: _Tables) -> float:
    """Return the median relative distance over steps of one chunk, a few, and with decodes."""
    off = []
    for chunks, tokens, context in (
        (b, t, c) for b in (1, 4) for t in TOKENS[2:40:3] for c in CONTEXTS
    ):
        for decodes in (0, 64):
            total = chunks * tokens + decodes
            shared = tables.compute(total) + tables.exchange(total)
            shared += tables.logits(chunks + decodes)
            raw = shared + tables.chunk_attention(chunks, tokens, context)
            near = cost.compute(total) + cost.exchange(total) + cost.logits(chunks + decodes)
            work = chunks * tokens * (context + tokens / 2)
            near += cost.chunk_attention(chunks * tokens, work)
            if decodes:
                raw += tables.decode_attention(decodes, 2048)
                near += cost.decode_attention(decodes, decodes * 2048)
            off.append(abs(near / raw - 1))
    return float(np.median(off))


def _options(
    tensor_parallel: int, pipeline_parallel: int, weights: str | None, kv_cache: str | None
) -> dict[str, Any]:
    return {
        "tp_size": tensor_parallel,
        "pp_size": pipeline_parallel,
        "moe_tp_size": tensor_parallel,
        "gemm_quant_mode": weights,
        # The tables know scales of the checkpoint for plain matrices only.
        "moe_quant_mode": "fp8" if weights == "fp8_static" else weights,
        "kvcache_quant_mode": kv_cache,
    }


def _home() -> Path:
    try:
        import aiconfigurator_core
    except ImportError:
        raise EngineTrouble(MISSING) from None
    return Path(aiconfigurator_core.__file__).parent


def _config(model: str) -> dict[str, Any]:
    """Read the config here: their own look-up of an unknown name would go to the network."""
    values: dict[str, Any] = json.loads(config_file(model).read_text())
    inside = values.get("text_config")
    return {**values, **inside} if isinstance(inside, dict) else values


def _scaled_by_blocks(config: dict[str, Any]) -> bool:
    scheme = config.get("quantization_config")
    return isinstance(scheme, dict) and bool(scheme.get("weight_block_size"))


def _check_system(system: str) -> None:
    if system not in systems():
        raise UserMistake(
            f"There are no GPU costs for `{system[:40]}`: choose one of {', '.join(systems())}."
        )


@contextmanager
def _remarks() -> Iterator[list[str]]:
    """Collect what the package logs, instead of letting it print."""
    said: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.getLogger("aiconfigurator_core")
    handler = Collect(logging.WARNING)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _low_fidelity(remarks: list[str], names: set[str]) -> Iterator[str]:
    """Name the fallback tables that this model's operations can draw from."""
    found = {
        (match[1], match[2])
        for remark in remarks
        if (match := re.search(r"low-fidelity.* for (\w+)_perf\S* from \S*/(\w+/[^/]+)/", remark))
    }
    for table, source in sorted(found):
        if any(f"_{table.split('_')[0]}_" in f"_{name}_" for name in names):
            yield f"low-fidelity rows for {table}, from {source}"


def _plain(name: str) -> str:
    return re.sub(r"^(context|generation)_|_(gemm|\d)$", "", name).replace("_", " ")
