"""The rounds of a comparison: every arm on the same requests, run after run.

    for each round: draw its requests, then let every arm play them, in an order
    in which each arm follows each other one equally often; keep each run at once;
    stop when the intervals are narrow enough, or at the limit that was stated.

Invariant: a run that a server's death touched is thrown away whole, and no run
finds another's prompts in a prefix cache.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkwise.lab import runs
from chunkwise.lab.arms import Arm
from chunkwise.lab.fleet import Fleet
from chunkwise.lab.load import Client, Played, Request
from chunkwise.lab.runs import Run
from chunkwise.lab.search import best_static
from chunkwise.lab.server import Given, Server
from chunkwise.lab.source import Source
from chunkwise.measured import Measured
from chunkwise.slo import Slo

SEARCH_SEED = 1_000_000  # no round's
WARM_UP_SEED = 2_000_000
WARM_UP = 16  # requests at once, where the users are not counted
WARM_UP_OUTPUT = 32  # tokens: enough that prompts are read beside answers

Say = Callable[[str, float], None]
Enough = Callable[[Mapping[str, Any], Sequence[Run]], bool]


class Lab:
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
    ) -> str:
        """Play what the file still lacks, run by run; return why it is enough."""
        arms = {name: Arm.from_json(name, found) for name, found in asked["arms"].items()}
        most = int(asked["rule"]["most_rounds"])
        if self._fleet.together:
            self._say(f"Starting {len(arms)} servers", 0.0)
            for arm in arms.values():
                self._fleet.begin(arm)
        step = int(asked["rounds_a_turn"])
        for first in range(0, most, step):
            numbers = range(first, min(first + step, most))
            had = {(run.arm, run.round) for run in done}
            if had.issuperset((name, number) for name in arms for number in numbers):
                continue
            if reason := ending(asked, done, time.monotonic() - began, enough):
                return reason
            requests = {number: requests_of(self._source, self._load, number) for number in numbers}
            for place, name in enumerate(order(list(arms), first // step)):
                for number in numbers:
                    if (name, number) in had:
                        continue
                    words = f"Round {number + 1} of at most {most}: {name}"
                    share = len(done) / (most * len(arms))
                    found = self._play(arms[name], requests[number], words, share)
                    run = Run(name, number, place, found.measured, found.lag, found.failed)
                    runs.add(file, run)
                    done.append(run)
        return ending(asked, done, time.monotonic() - began, enough) or "nothing was left to do"

    def search(self, field: Sequence[Arm], slo: Slo | None, until: float) -> Arm:
        """Find the best fixed settings, before the rounds; no try starts after `until`."""

        def play(arm: Arm, n: int) -> Measured:
            requests = requests_of(self._source, self._load, SEARCH_SEED, n)
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
        drawn = requests_of(self._source, self._load, WARM_UP_SEED, n)
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
            salt=uuid.uuid4().hex,  # the prefix cache's key: never the same twice
            block_size=self._source.block_size,
        )


def order(arms: Sequence[str], number: int) -> list[str]:
    """Return a round's order: over the rounds each arm has each place, and follows each other."""
    n = len(arms)
    # Williams: 0, n-1, 1, n-2, … shifted by one each round; with an odd number of
    # arms every other set of rounds runs backwards.
    first = [index // 2 if index % 2 == 0 else n - 1 - index // 2 for index in range(n)]
    shifted = [arms[(index + number) % n] for index in first]
    return shifted[::-1] if n % 2 and (number // n) % 2 else shifted


def requests_of(
    source: Source, load: Mapping[str, Any], number: int, n: int | None = None
) -> list[Request]:
    """Return the requests of a round, or `n` of its kind."""
    seed = int(load["seed"]) + number
    return source.round(n or load["requests"], seed, load["rate"], load["users"])


def ending(
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
