"""Analyse what a person names: open each place, profile it, keep what failed.

The one loop of this room. Invariant: one dataset is read at a time, and the
text workers start with the first text and end with the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic

from chunkwise.errors import UserMistake, plain
from chunkwise.readers.capture import Capture, captures, is_capture, runs
from chunkwise.workload.captured import captured, name_of
from chunkwise.workload.layouts import DEFAULT_BLOCK
from chunkwise.workload.profile import DatasetProfile, Profile, is_profile, profile_of
from chunkwise.workload.readers import files_in, is_address, open_address, open_file
from chunkwise.workload.text_workload import EstimateMeter, Meter, Reading
from chunkwise.workload.tokens import TokenPool, find_tokenizer
from chunkwise.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Analysis:
    """The profile of all that could be read, and the sentences for what could not."""

    profile: Profile
    skipped: tuple[tuple[str, str], ...]  # name, reason


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    where: Path | str | list[Capture]
    among_others: bool  # found in a folder, not named by the person


def analyze(
    places: Sequence[str],
    *,
    columns: tuple[str, ...] | None = None,
    tokenizer: str | None = None,
    estimate: bool = False,
    block_size: int | None = None,
    tell: Callable[[str, float], None] = lambda text, done: None,
) -> Analysis:
    """Profile files, folders, addresses and saved profiles. Usage: `analyze(["logs/"])`."""
    found = [place for named in places for place in _expanded(named)]
    tell = _seldom(tell)
    datasets: list[DatasetProfile] = []
    skipped: list[tuple[str, str]] = []
    with ExitStack() as stack:
        reading = replace(
            Reading(columns, block_size, estimate),
            meter=_meter(tokenizer, estimate, block_size or DEFAULT_BLOCK, stack),
        )
        for index, place in enumerate(found):
            tell(place.name, index / len(found))
            try:
                datasets += _profiled(place, reading, tell, index / len(found))
            except UserMistake as mistake:
                if not place.among_others:
                    raise
                skipped.append((place.name, str(mistake)))
    if not datasets:
        reason = f" ({skipped[0][1]})" if skipped else ""
        raise UserMistake(
            f"None of the {len(found)} files in {', '.join(places)[:200]} could be read{reason}"
        )
    return Analysis(Profile(datasets=tuple(datasets)), tuple(skipped))


def _seldom(tell: Callable[[str, float], None]) -> Callable[[str, float], None]:
    # Batches and small files pass by the hundred in a second: say so once.
    last = monotonic()

    def say(text: str, done: float) -> None:
        nonlocal last
        if monotonic() - last >= 1:
            tell(text, done)
            last = monotonic()

    return say


def _expanded(named: str) -> Iterator[_Place]:
    if is_address(named):
        yield _Place(named, named, among_others=False)
        return
    path = Path(named).expanduser()
    if is_capture(path):
        found = runs(captures(path))
        for run in found:
            yield _Place(name_of(run), run, among_others=len(found) > 1)
    elif path.is_dir():
        for file in files_in(path):
            yield _Place(plain(file.relative_to(path).as_posix()), file, among_others=True)
    elif path.is_file():
        yield _Place(plain(path.name), path, among_others=False)
    else:
        raise UserMistake(f"There is no file or folder at {named[:200]}.")


def _profiled(
    place: _Place, reading: Reading, tell: Callable[[str, float], None], done: float
) -> tuple[DatasetProfile, ...]:
    if isinstance(place.where, str):
        opened: Workload = open_address(place.where, reading)
    elif isinstance(place.where, list):
        opened = captured(place.where)
    elif is_profile(place.where):
        return Profile.load(place.where).datasets
    else:
        opened = open_file(place.where, place.name, reading)
    return (profile_of(opened, lambda rows: tell(f"{place.name}: {rows:,} requests", done)),)


def _meter(
    tokenizer: str | None, estimate: bool, block_size: int, stack: ExitStack
) -> Callable[[], Meter] | None:
    if estimate:
        return lambda: EstimateMeter(block_size)
    if tokenizer is None:
        return None
    found = find_tokenizer(tokenizer)
    # Once, when the first text is met: a trace needs no workers.
    return cache(lambda: stack.enter_context(TokenPool(found, block_size)))
