"""A fitted cost before any step was taken: from kernel times of the same kind of GPU.

The live fit has seven terms, the measured tables have curves; so a few hundred
designed steps are priced by the tables and the terms are fitted to those.
Invariant: a device whose name leaves any doubt has no system, and where there is
no system, no table or no config of the model, there is no expectation.
"""

import re
from itertools import product

from chunkwise.cost.fitted import FittedCost, TimedStep, fit
from chunkwise.cost.graphs import StepTerms, default_capture_limit
from chunkwise.cost.step import Provenance, StepCost, StepShape

SOURCE = "silicon"
CHUNKS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
CONTEXTS = (0, 2048, 8192)
DECODES = (0, 1, 8, 32, 128)
DECODE_CONTEXTS = (512, 4096)
# What a driver calls a GPU -> the system of the tables. Other memory or another bus is another GPU.
SYSTEMS = (
    (r"NVIDIA A100-SXM4-80GB", "a100_sxm"),
    (r"NVIDIA H100 80GB HBM3", "h100_sxm"),
    (r"NVIDIA H200", "h200_sxm"),
    (r"NVIDIA B200", "b200_sxm"),
    (r"NVIDIA B300( SXM6)?( AC)?", "b300_sxm"),
    (r"NVIDIA GB200", "gb200"),
    (r"NVIDIA GB300", "gb300"),
    (r"NVIDIA L40S", "l40s"),
    (r"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server"),
)


def system_of(device: str) -> str | None:
    """Return the tables' name of a device, as its driver names it; None in any doubt."""
    found = (system for name, system in SYSTEMS if re.fullmatch(name, device.strip()))
    return next(found, None)


def expect(
    model: str, where: Provenance, budget: int, seqs: int, eager: bool = False
) -> FittedCost | None:
    """Return what steps up to a budget should cost on a GPU that the tables know.

    Usage: `expect("Qwen/Qwen3-8B", provenance, budget=8192, seqs=256)`. Takes about two
    seconds; raises a sentence where the tables know the GPU and not the model.
    """
    system = system_of(where.device)
    if system is None:
        return None
    from chunkwise.cost import silicon

    limit = 0 if eager else default_capture_limit(system)
    terms = StepTerms(capture_limit=limit)
    cost = silicon.load(model, system, where.tensor_parallel, terms=terms)
    return fitted_to(cost, budget, seqs)


def fitted_to(cost: StepCost, budget: int, seqs: int) -> FittedCost:
    """Fit the live cost's terms to designed steps at another cost's prices."""
    shapes = {
        StepShape.of([(min(chunk, budget), context)] if chunk else [], [behind] * min(some, seqs))
        for chunk, context, some, behind in product(
            (0, *CHUNKS), CONTEXTS, DECODES, DECODE_CONTEXTS
        )
        if chunk or some
    }
    ordered = sorted(shapes, key=lambda shape: (shape.tokens, shape.prefill_work, shape.decodes))
    return fit([TimedStep(shape, cost.seconds(shape)) for shape in ordered], cost.provenance)
