"""From a source of steps to a fitted cost: a capture, a stock server's log, or a run.

Invariant: whatever the source, at most `MOST_STEPS` steps are in memory, a fair
sample of all, and the error that is told was made on steps that the fit had not
seen (unless there are too few to set some aside).
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from chunkwise.cost.fitted import (
    CONTEXT_TERMS,
    LEAST_STEPS,
    FittedCost,
    TimedStep,
    errors,
    fit,
    quantiles,
)
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.errors import UserMistake
from chunkwise.observed import Step
from chunkwise.readers.capture import calibration, captures, is_capture
from chunkwise.readers.iterations import Iteration, IterationLog

MOST_STEPS = 20_000
# vLLM's first steps load and compile; they say nothing about those that follow.
WARM_UP_STEPS = 5
WHY_NO_CONTEXT = "context terms unknown: the log does not tell how much context a step had"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Steps:
    """Timed steps, where they are from, and which terms they cannot tell."""

    timed: Sequence[TimedStep]
    seen: int
    where: Provenance
    unknown: tuple[str, ...] = ()


def from_place(place: Path) -> Steps:
    """Read a capture's folder or file, or a log. Usage: `from_place(Path("server.log"))`."""
    if place.is_dir() or is_capture(place):
        return _from_capture(place)
    return _from_log(place)


def from_run(events: Iterable[Mapping[str, Any]]) -> Steps:
    """Take what `lab/calibration.py` reported."""
    engine, *rounds = events
    timed = [
        TimedStep(StepShape.of(chunks).with_decodes(decodes, context), seconds)
        for round_ in rounds
        for chunks, decodes, context, seconds, _ in round_["steps"]
        if seconds > 0
    ]
    where = Provenance("calibration", engine["model"], engine["device"], engine=engine["vllm"])
    return Steps(timed, len(timed), where)


def checked_fit(steps: Steps) -> FittedCost:
    """Fit all steps; the errors are those of two fits, each on the other's half."""
    cost = fit(steps.timed, steps.where, steps.unknown)
    halves = (steps.timed[::2], steps.timed[1::2])
    if min(map(len, halves)) < LEAST_STEPS:
        return cost  # too few to set any aside: the errors are those of the fit itself
    off = [
        errors(fit(mine, steps.where, steps.unknown), other)
        for mine, other in (halves, halves[::-1])
    ]
    return replace(cost, error=quantiles(np.concatenate(off)))


def typical_decodes(steps: Steps) -> StepShape:
    """Return what decodes in a usual step that has decodes."""
    crowds = sorted(
        ((step.shape.decodes, step.shape.decode_context) for step in steps.timed),
        key=lambda pair: pair[0],
    )
    crowds = [pair for pair in crowds if pair[0]]
    return StepShape().with_decodes(*crowds[len(crowds) // 2]) if crowds else StepShape()


def with_context_of(cost: FittedCost, gpu: str) -> FittedCost:
    """Fill in what context costs from a GPU's tables, where the source could not tell."""
    from chunkwise.cost import silicon

    if not cost.unknown:
        raise UserMistake("--gpu is for logs: this source tells itself what context costs.")
    where = cost.provenance
    tables = silicon.load(where.model, gpu, where.tensor_parallel)

    def seconds(tokens: int, context: int, decodes: int) -> float:
        return tables.seconds(
            StepShape.of([(tokens, context)]).with_decodes(decodes, decodes * context)
        )

    deep = 16_384
    pair = (seconds(2048, deep, 0) - seconds(2048, 0, 0)) / (2048 * deep)
    decode = (seconds(0, deep, 32) - seconds(0, 1, 32)) / (32 * (deep - 1))
    notes = tuple(note for note in where.notes if note != WHY_NO_CONTEXT)
    return replace(
        cost,
        coefficients=replace(cost.coefficients, pair=pair, decode_context=decode),
        provenance=replace(where, notes=(*notes, f"context terms from the tables of {gpu}")),
        unknown=(),
    )


def sample(items: Iterable[Item], most: int = MOST_STEPS) -> tuple[list[Item], int]:
    """Return a fair sample of at most `most` items, in their order, and how many there were."""
    dice = random.Random(0)  # noqa: S311 - a sample, not a secret
    kept: list[tuple[int, Item]] = []
    seen = 0
    for item in items:
        if len(kept) < most:
            kept.append((seen, item))
        elif (at := dice.randrange(seen + 1)) < most:
            kept[at] = (seen, item)
        seen += 1
    kept.sort(key=lambda pair: pair[0])
    return [item for _, item in kept], seen


def _from_capture(place: Path) -> Steps:
    found = captures(place)
    header = found[0].header
    known = (header.model, header.device, header.tensor_parallel, header.vllm)
    for capture in found[1:]:
        other = capture.header
        if known != (other.model, other.device, other.tensor_parallel, other.vllm):
            raise UserMistake(
                f"{place} holds captures of different models or machines: name one file."
            )
    timed, seen = sample(
        TimedStep(StepShape.of(chunks).with_decodes(decodes, context), seconds)
        for capture in found
        for record in capture.records()
        if isinstance(record, Step)
        for chunks, decodes, context, seconds in (calibration(record),)
        if seconds > 0 and (chunks or decodes)
    )
    where = Provenance(
        "calibration", header.model, header.device, header.tensor_parallel, engine=header.vllm
    )
    return Steps(timed, seen, where)


def _from_log(place: Path) -> Steps:
    log = IterationLog(place)
    found, seen = sample(log.iterations())
    if not found:
        raise UserMistake(
            f"{place} holds no iterations: start the server with "
            f"--enable-logging-iteration-details, or name a capture."
        )
    if not log.waits_for_steps:
        raise UserMistake(
            f"{place} is of an engine that schedules ahead (or does not tell), and then vLLM "
            f"logs only the time it waited: start the server with --no-async-scheduling, or "
            f"with CHUNKWISE=observe, and try again."
        )
    timed = [
        _of_iteration(item)
        for item in found
        if item.index >= WARM_UP_STEPS and item.seconds > 0 and (item.chunks or item.decodes)
    ]
    where = Provenance(
        "calibration",
        log.model or place.name,
        "as logged",
        engine=log.version,
        notes=(WHY_NO_CONTEXT,),
    )
    return Steps(timed, seen, where, unknown=CONTEXT_TERMS)


def _of_iteration(item: Iteration) -> TimedStep:
    shape = StepShape(item.prefill_tokens, item.chunks, 0.0, item.decodes, 0)
    return TimedStep(shape, item.seconds)
