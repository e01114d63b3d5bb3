"""The measured GPU serving runs, and how each is simulated.

The measurements are those that `aiconfigurator-core` ships (`silicon_sample.csv`).
Most are of InferenceMAX, whose scripts are public and say what the file does not:
the checkpoint, the KV cache's type, the budget, and what the client sends. What
stands here is taken from those scripts as of the rows' dates, not fitted to the
rows; for the runs of vLLM 0.12, whose source says nothing, it is a guess.
"""

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from chunkwise.cost.gpu import SiliconCost
    from chunkwise.cost.shape import ModelShape

NAMES = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B"}
DENSE = {"Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B"}
BYTES = {"": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53}
# Seconds from a client's sending to the scheduler: HTTP and between processes, and the prompt's
# tokens from its text (results/fidelity_tokenizer.txt).
REQUEST_LATENCY = 0.0025
REQUEST_LATENCY_A_TOKEN = 3e-6
OTHER_BYTES = 5e9  # what a device holds beside weights and KV cache
BLACKWELL = ("b200_sxm", "b300_sxm")


@dataclass(frozen=True)
class Served:
    """How the load was made and the server set."""

    budget: int
    jitter: float = 0.2  # lengths uniform in (1 - jitter, 1] of nominal
    asynchronous: bool = True
    host: float = 0.0005
    host_per_request: float = 0.0
    kv_bytes: int = 2  # of a number in the KV cache
    memory: float = 0.9
    most_graph: int | None = None  # largest captured step, where it is not today's default


@dataclass(frozen=True)
class Row:
    id: str
    model: str
    system: str
    quantization: str
    tp: int
    ep: int
    isl: int
    osl: int
    concurrency: int
    ttft: float
    tpot: float
    version: str

    @property
    def group(self) -> str:
        name = self.model.split("/")[-1]
        return f"{name} {self.system.split('_')[0].upper()} {self.quantization or 'bf16'}"

    @property
    def weights(self) -> str | None:
        """The quantisation by the tables' name; none: as the model's own config says."""
        if self.model.startswith(("meta-llama/", "nvidia/")) and self.quantization == "fp8":
            return "fp8_static"  # NVIDIA's checkpoints have the scales in them
        if self.quantization in ("fp8", "int4_wo") or "gpt-oss" in self.model:
            return None  # by blocks, in groups, and MXFP4, which the file calls nvfp4
        return self.quantization or None

    @property
    def served(self) -> Served:
        if self.version == "0.12.0":
            budget = self.concurrency + self.isl + 1500
            return Served(budget, 0.0, False, host=0.0015, host_per_request=0.00004)
        if "Llama" in self.model:  # vLLM 0.10.2 for all of them
            return Served(8192, kv_bytes=1, most_graph=512)
        blackwell = self.system in BLACKWELL
        if "gpt-oss" in self.model:
            return Served(8192, kv_bytes=1 if blackwell else 2)
        if "MiniMax" in self.model:
            if blackwell:
                return Served(2 * self.isl, kv_bytes=1)
            return Served(8192, memory=0.95 if self.system == "h200_sxm" else 0.9)
        if self.quantization == "nvfp4" and self.system == "b200_sxm":  # Kimi
            return Served(2 * self.isl, kv_bytes=1)
        return Served(8192, memory=0.95 if self.quantization == "int4_wo" else 0.9)


def rows(moe: bool = False) -> list[Row]:
    """Return the single-engine vLLM rows, dense or not, that say their concurrency."""
    spec = find_spec("aiconfigurator_core")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "systems" / "silicon_sample.csv"
    found = []
    with file.open() as lines:
        for item in csv.DictReader(lines):
            if item["backend"] != "vllm" or item["mode"] != "agg":
                continue
            if item["attention_dp_size"] not in ("", "1"):
                continue  # several engines
            said = re.search(r"silicon_concurrency=(\d+)", item["silicon_data_source"])
            if said is None or (item["model_path"] in DENSE) == moe:
                continue
            found.append(
                Row(
                    item["id"],
                    item["model_path"],
                    item["system"],
                    item["gemm_quant_mode"],
                    int(item["tp_size"]),
                    int(item["moe_ep_size"] or 1),
                    int(item["isl"]),
                    int(item["osl"]),
                    int(said[1]),
                    float(item["silicon_ttft_ms"]) / 1000,
                    float(item["silicon_tpot_ms"]) / 1000,
                    item["backend_version"],
                )
            )
    return found


def why_not(row: Row) -> str | None:
    """Say why a row cannot be simulated."""
    if row.ep > 1:
        return "experts spread over devices whole (EP); costs are read for experts cut by TP"
    return None


def run(row: Row, factor: float = 1.0, floor: float = 0.0) -> tuple[float, float]:
    """Simulate a row; return the mean TTFT and the mean time per output token."""
    from chunkwise.cost.graphs import Graphs, StepTerms, default_capture_limit
    from chunkwise.settings import Settings
    from chunkwise.sim.run import Machine, simulate
    from chunkwise.sim.sources import Users
    from chunkwise.sim.traffic import Traffic

    served = row.served
    terms = StepTerms(
        host=served.host,
        host_per_request=served.host_per_request,
        capture_limit=served.most_graph or default_capture_limit(row.system),
        prefill_factor=factor,
        prefill_floor=floor,
    )
    # On Hopper the fp8 cache saves room but no time: FlashAttention's decodes over it were no
    # faster than over bf16 then, as we read vllm-project/flash-attention#96.
    kv_cache = "fp8" if served.kv_bytes == 1 and row.system in BLACKWELL else None
    cost = _cost(row.model, row.system, row.weights, row.tp, kv_cache)
    cost = replace(cost, terms=terms, graphs=Graphs(terms, _shape(row.model).layers))
    latency = REQUEST_LATENCY + REQUEST_LATENCY_A_TOKEN * row.isl * (1 - served.jitter / 2)
    machine = Machine(cost, kv_tokens(row), 131_072, latency)
    settings = Settings(
        max_num_batched_tokens=served.budget,
        max_num_seqs=row.concurrency,
        async_scheduling=served.asynchronous,
        enable_prefix_caching=False,
    )
    traffic = Traffic.made(row.isl, row.osl, 10 * row.concurrency, served.jitter, seed=0)
    found = simulate(traffic, settings, machine, Users(row.concurrency)).measured
    return float(found.ttft.mean()), float(np.nanmean(found.time_per_output_token))


def kv_tokens(row: Row) -> int:
    """Return the tokens that the KV cache has room for."""
    from chunkwise.cost.memory import kv_bytes_per_token
    from chunkwise.cost.silicon import device_memory

    shape, served = _shape(row.model), row.served
    total, _ = device_memory(row.system, row.tp)
    ends = (1 if shape.tied else 2) * shape.vocab * shape.hidden  # stay in bf16
    weights = (shape.weights - ends) * BYTES[row.quantization] + ends * 2
    room = served.memory * total - weights / row.tp - OTHER_BYTES
    return int(room / kv_bytes_per_token(shape, served.kv_bytes, row.tp))


@cache
def _cost(
    model: str, system: str, weights: str | None, tp: int, kv_cache: str | None
) -> "SiliconCost":
    from chunkwise.cost import silicon

    return silicon.load(NAMES.get(model, model), system, tp, weights=weights, kv_cache=kv_cache)


@cache
def _shape(model: str) -> "ModelShape":
    from chunkwise.cost.shape import read_shape
    from chunkwise.cost.silicon import config_file

    return read_shape(str(config_file(NAMES.get(model, model))))
