"""The comparison: from what was asked to a file of runs, and on after a break.

Invariant: the rule that ends it is written down before the first run, and the
baseline runs twice in every round under two names: what these two differ by is
noise. The file alone suffices to go on.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from chunkwise.errors import UserMistake
from chunkwise.lab import runs
from chunkwise.lab.arms import Arm, Machine, refuse_unknown, settled
from chunkwise.lab.engines import CPU_KV_BYTES
from chunkwise.lab.fleet import Fleet
from chunkwise.lab.load import Client
from chunkwise.lab.rounds import Enough, Lab, Say, ending, requests_of
from chunkwise.lab.runs import Run
from chunkwise.lab.search import NAME as BEST_STATIC
from chunkwise.lab.search import candidates
from chunkwise.lab.source import Source, fingerprint, open_source
from chunkwise.slo import Slo

SEED = 0
# Where every turn starts a server anew, it plays so many rounds: starting takes minutes.
ROUNDS_A_TURN = 5
SEARCH_SHARE = 1 / 3  # of the time limit, for best-static


@dataclass(frozen=True)
class Question:
    """What a person wants compared."""

    command: tuple[str, ...]
    model: str
    place: str
    arms: tuple[Arm, ...]
    baseline: str
    rule: dict[str, float]  # least_rounds, most_rounds, precision, seconds
    requests: int
    rate: float | None = None
    users: int | None = None
    columns: tuple[str, ...] | None = None
    slo: Slo | None = None
    server_args: tuple[str, ...] = ()  # for every server that we start


def begin(question: Question, file: Path, say: Say, enough: Enough | None = None) -> str:
    """Carry a comparison to its end and say why it ended. Usage: `begin(question, file, say)`."""
    began = time.monotonic()
    source = open_source(question.place, question.model, question.columns)
    _refuse_untimed(source, question)
    length = _value(question.server_args, "--max-model-len")
    with Client(question.model, length) as client:
        machine = client.start(say)
        refuse_unknown(question.server_args, machine)
        arms = [settled(arm, machine, question.slo) for arm in question.arms]
        common = (*_for_machine(machine, question.server_args), *question.server_args)
        # On a GPU each server would need the memory of all; a CPU's waits at no cost.
        together = machine.on_cpu or all(arm.url for arm in arms)
        source = source.fitting(machine.context)
        load = _load(question, source)
        with Fleet(question.model, common, together) as fleet:
            lab = Lab(client, fleet, source, load, say)
            for index, arm in enumerate(arms):
                if arm.said == BEST_STATIC:
                    until = began + question.rule["seconds"] * SEARCH_SHARE
                    arms[index] = lab.search(candidates(machine), question.slo, until)
            baseline = next(arm for arm in arms if arm.name == question.baseline)
            twin = replace(baseline, name=f"{baseline.name} again", search=())
            asked = {
                "command": list(question.command),
                "model": question.model,
                "arms": {arm.name: arm.to_json() for arm in (*arms, twin)},
                "baseline": baseline.name,
                "twin": twin.name,
                "common": list(common),
                "load": load,
                "promise": _promise(question.slo),
                "rule": question.rule,
                "environment": _environment(machine),
                "together": together,
                "rounds_a_turn": 1 if together else ROUNDS_A_TURN,
            }
            runs.begin(file, asked)
            return lab.rounds(file, asked, [], enough or _narrow_enough, began)


def resume(file: Path, say: Say, enough: Enough | None = None) -> str:
    """Go on with a comparison that a break cut short. Usage: `resume(file, say)`."""
    asked, done = runs.read(file)
    runs.mend(file)
    enough = enough or _narrow_enough
    # What was spent between the runs of an earlier start is not known, and forgiven.
    spent = sum(run.measured.seconds for run in done)
    began = time.monotonic() - spent
    if reason := ending(asked, done, spent, enough):
        return reason
    load = asked["load"]
    columns = None if load["columns"] is None else tuple(load["columns"])
    source = open_source(load["place"], asked["model"], columns)
    length = _value(asked["common"], "--max-model-len")
    with Client(asked["model"], length) as client:
        machine = client.start(say)
        if _environment(machine) != asked["environment"]:
            raise UserMistake(
                f"{file} was begun with another vLLM or on another machine: its runs and new ones "
                f"cannot be compared; start again."
            )
        source = source.fitting(machine.context)
        if fingerprint(requests_of(source, load, 0)) != load["fingerprint"]:
            raise UserMistake(f"{load['place']} has changed since {file} was begun: start again.")
        with Fleet(asked["model"], tuple(asked["common"]), asked["together"]) as fleet:
            lab = Lab(client, fleet, source, load, say)
            return lab.rounds(file, asked, list(done), enough, began)


def _narrow_enough(asked: Mapping[str, Any], done: Sequence[Run]) -> bool:
    from chunkwise.lab.statistics import compare

    return compare(asked, done).narrow_enough


def _for_machine(machine: Machine, given: Sequence[str]) -> Iterator[str]:
    """Return what a short comparison needs on this machine, unless the person said otherwise."""
    if machine.dummy:
        yield from ("--load-format", "dummy")
    if machine.on_cpu:
        # Compiling takes minutes for every new budget; the KV cache would otherwise
        # take most of the machine's memory.
        yield "--enforce-eager"
        if _value(given, "--kv-cache-memory-bytes") is None:
            yield from ("--kv-cache-memory-bytes", str(CPU_KV_BYTES))


def _value(args: Sequence[str], flag: str) -> int | None:
    """Return the number behind a flag, written `--flag N` or `--flag=N`."""
    words = [part for word in args for part in word.split("=", 1)]
    if flag not in words[:-1]:
        return None
    text = words[words.index(flag) + 1]
    return int(text) if text.isdecimal() else None


def _load(question: Question, source: Source) -> dict[str, Any]:
    closed = question.users is not None
    found: dict[str, Any] = {
        "kind": "closed" if closed else "recorded" if question.rate is None else "poisson",
        "rate": question.rate,
        "users": question.users,
        "requests": question.requests,
        "seed": SEED,
        "source": source.words,
        "place": question.place,
        "columns": None if question.columns is None else list(question.columns),
    }
    return {**found, "fingerprint": fingerprint(requests_of(source, found, 0))}


def _refuse_untimed(source: Source, question: Question) -> None:
    if not source.timed and question.rate is None and question.users is None:
        raise UserMistake(
            f"{question.place} has no arrival times: give --rate 2 (requests a second) or "
            f"--users 8 (at once)."
        )


def _promise(slo: Slo | None) -> dict[str, float | None] | None:
    if slo is None:
        return None
    return {
        "ttft": slo.ttft if isfinite(slo.ttft) else None,
        "itl": slo.itl if isfinite(slo.itl) else None,
    }


def _environment(machine: Machine) -> dict[str, Any]:
    return {
        "vllm": machine.version,
        "device": machine.device,
        "cores": machine.cores,
        "context": machine.context,
    }
