"""The comparison: rounds of all arms on the same requests, until enough is known.

    for each round: draw its requests, then let every arm play them, in an order
    in which each arm follows each other one equally often; keep each run at once;
    stop when the intervals are narrow enough, or at the limit that was stated.

Invariant: the rule is written down before the first run, the baseline runs twice
in every round under two names (what these two differ by is noise), and a run that
a server's death touched is thrown away whole. The file alone suffices to go on.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from chunkwise.errors import UserMistake
from chunkwise.lab import runs
from chunkwise.lab.arms import Arm, Machine, refuse_unknown, settled
from chunkwise.lab.engines import CPU_KV_BYTES
from chunkwise.lab.fleet import Fleet
from chunkwise.lab.load import Client, Played, Request
from chunkwise.lab.runs import Run
from chunkwise.lab.search import NAME as BEST_STATIC
from chunkwise.lab.search import best_static, candidates
from chunkwise.lab.server import Given, Server
from chunkwise.lab.source import Source, fingerprint, open_source
from chunkwise.slo import Slo

SEED = 0
SEARCH_SHARE = 1 / 3  # of the time limit, for best-static
SEARCH_SEED = 1_000_000  # no round's
WARM_UP_SEED = 2_000_000
WARM_UP = 16  # requests at once, where the users are not counted
WARM_UP_OUTPUT = 8  # tokens

Say = Callable[[str, float], None]
Enough = Callable[[Mapping[str, Any], Sequence[Run]], bool]


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


def begin(question: Question, file: Path, say: Say, enough: Enough | None = None) -> None:
    """Start a comparison and carry it to its end. Usage: `begin(question, file, say)`."""
    began = time.monotonic()
    source = open_source(question.place, question.model, question.columns)
    _refuse_untimed(source, question)
    length = _value(question.server_args, "--max-model-len")
    with Client(question.model, length) as client:
        machine = client.start(say)
        refuse_unknown(question.server_args, machine)
        arms = [settled(arm, machine) for arm in question.arms]
        common = (*_for_machine(machine, question.server_args), *question.server_args)
        # On a GPU each server would need the memory of all; a CPU's waits at no cost.
        together = machine.on_cpu or all(arm.url for arm in arms)
        load = _load(question, source.fitting(machine.context))
        with Fleet(question.model, common, together) as fleet:
            lab = _Lab(client, fleet, source.fitting(machine.context), load, say)
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
            }
            runs.begin(file, asked)
            lab.rounds(file, asked, [], enough or _narrow_enough, began)


def resume(file: Path, say: Say, enough: Enough | None = None) -> None:
    """Go on with a comparison that a break cut short. Usage: `resume(file, say)`."""
    asked, done = runs.read(file)
    runs.mend(file)
    enough = enough or _narrow_enough
    # What was spent between the runs of an earlier start is not known, and forgiven.
    spent = sum(run.measured.seconds for run in done)
    began = time.monotonic() - spent
    if _ending(asked, done, spent, enough):
        return
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
        if fingerprint(_requests(source, load, 0)) != load["fingerprint"]:
            raise UserMistake(f"{load['place']} has changed since {file} was begun: start again.")
        with Fleet(asked["model"], tuple(asked["common"]), asked["together"]) as fleet:
            _Lab(client, fleet, source, load, say).rounds(file, asked, list(done), enough, began)


def order(arms: Sequence[str], number: int) -> list[str]:
    """Return a round's order: over the rounds each arm has each place, and follows each other."""
    n = len(arms)
    # Williams: 0, n-1, 1, n-2, … shifted by one each round; with an odd number of
    # arms every other set of rounds runs backwards.
    first = [index // 2 if index % 2 == 0 else n - 1 - index // 2 for index in range(n)]
    shifted = [arms[(index + number) % n] for index in first]
    return shifted[::-1] if n % 2 and (number // n) % 2 else shifted


class _Lab:
    """A client, servers and a source, ready to play."""

    def __init__(
        self, client: Client, fleet: Fleet, source: Source, load: dict[str, Any], say: Say
    ):
        self._client, self._fleet, self._source = client, fleet, source
        self._load, self._say = load, say

    def rounds(
        self,
        file: Path,
        asked: Mapping[str, Any],
        done: list[Run],
        enough: Enough,
        began: float,
    ) -> None:
        """Play what the file still lacks, run by run."""
        arms = {name: Arm.from_json(name, found) for name, found in asked["arms"].items()}
        most = int(asked["rule"]["most_rounds"])
        if self._fleet.together:
            self._say(f"Starting {len(arms)} servers", 0.0)
            for arm in arms.values():
                self._fleet.begin(arm)
        for number in range(most):
            had = {run.arm for run in done if run.round == number}
            if len(had) == len(arms):
                continue
            if reason := _ending(asked, done, time.monotonic() - began, enough):
                self._say(f"Done: {reason}", 1.0)
                return
            requests = _requests(self._source, self._load, number)
            for place, name in enumerate(order(list(arms), number)):
                if name in had:
                    continue
                share = (number * len(arms) + place) / (most * len(arms))
                words = f"Round {number + 1} of at most {most}: {name}"
                found = self._play(arms[name], requests, words, share)
                run = Run(name, number, place, found.measured, found.lag, found.failed)
                runs.add(file, run)
                done.append(run)

    def search(self, field: Sequence[Arm], slo: Slo | None, until: float) -> Arm:
        """Find the best fixed settings, before the rounds; no try starts after `until`."""

        def play(arm: Arm, n: int) -> Any:
            requests = _requests(self._source, self._load, SEARCH_SEED, n)
            words = f"Looking for best-static: {arm.said} on {n} requests"
            return self._play(arm, requests, words, 0.0).measured

        if self._fleet.together:
            for arm in field:
                self._fleet.begin(arm)
        in_time = lambda: time.monotonic() < until  # noqa: E731
        return best_static(field, self._load["requests"], slo, play, self._fleet.stop, in_time)

    def _play(self, arm: Arm, requests: Sequence[Request], words: str, done: float) -> Played:
        while True:
            server = self._fleet.ready(arm, self._warm_up)
            self._say(words, done)
            found = self._send(server, requests, self._load["users"])
            if found is not None and (not found.failed or server.answers):
                return found
            self._fleet.lost(arm, "hung" if found is None else "died in mid-run")
            self._say(f"The server of {arm.name} is lost: starting another", done)

    def _warm_up(self, server: Server | Given) -> None:
        self._say(f"Warming up {server.name}", 0.0)
        n = self._load["users"] or WARM_UP
        drawn = _requests(self._source, self._load, WARM_UP_SEED, n)
        # As many at once as the users will be; what a source lacks is repeated.
        short = [
            replace(drawn[index % len(drawn)], at=0.0, output_tokens=WARM_UP_OUTPUT)
            for index in range(n)
        ]
        self._send(server, short, users=n)

    def _send(
        self, server: Server | Given, requests: Sequence[Request], users: int | None
    ) -> Played | None:
        return self._client.play(
            server.url,
            server.model,
            requests,
            users=users,
            # Never the same twice: no run finds an earlier one's prompts in the prefix cache.
            salt=uuid.uuid4().hex,
            block_size=self._source.block_size,
        )


def _requests(
    source: Source, load: Mapping[str, Any], number: int, n: int | None = None
) -> list[Request]:
    seed = int(load["seed"]) + number
    return source.round(n or load["requests"], seed, load["rate"], load["users"])


def _ending(
    asked: Mapping[str, Any], done: Sequence[Run], spent: float, enough: Enough
) -> str | None:
    """Say which part of the rule is met after these runs, if one is."""
    rule, arms = asked["rule"], set(asked["arms"])
    by_round: dict[int, set[str]] = {}
    for run in done:
        by_round.setdefault(run.round, set()).add(run.arm)
    whole = sum(1 for seen in by_round.values() if seen == arms)
    if whole < len(by_round):
        return None  # a round is open: its runs need their partners
    if whole >= rule["most_rounds"]:
        return f"{whole} rounds, the most that were asked for"
    if whole and spent >= rule["seconds"]:
        return f"the time limit, after {whole} rounds"
    if whole >= rule["least_rounds"] and enough(asked, done):
        return f"every interval is within ±{rule['precision']:.0%}, after {whole} rounds"
    return None


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
    return {**found, "fingerprint": fingerprint(_requests(source, found, 0))}


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
