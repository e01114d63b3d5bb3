from tests.captures import life

from chunkwise.observed import Step
from chunkwise.readers.gaps import BETWEEN, DECODE, HELD, PREEMPTED, PREFILL, Gap, GapFinder


def found(records: list) -> list[Gap]:
    finder = GapFinder()
    return [
        gap._replace(seconds=round(gap.seconds, 6))
        for record in records
        for gap in finder.take(record)
    ]


def test_every_gap_has_its_cause() -> None:
    assert found(life()) == [
        Gap(0.02, 1, DECODE, 1),
        Gap(0.3, 1, PREFILL, 2),
        Gap(0.02, 2, DECODE, 3),
        Gap(0.02, 1, DECODE, 4),
        Gap(0.22, 1, PREEMPTED, 5),
        Gap(0.2, 1, PREFILL, 5),
        Gap(0.3, 1, BETWEEN, 6),
    ]


def test_who_is_held_back_waits_longer() -> None:
    records = [
        Step(0, 1.0, 0.1, decodes=2, decode_tokens=2),
        Step(1, 1.1, 0.1, decodes=1, decode_tokens=1, held=(7,)),
        Step(2, 1.2, 0.1, decodes=1, decode_tokens=1, held=(7,)),
        Step(3, 1.3, 0.1, decodes=2, decode_tokens=2),
    ]
    assert found(records) == [
        Gap(0.1, 1, DECODE, 1),
        Gap(0.1, 1, DECODE, 2),
        Gap(0.3, 1, HELD, 3),
        Gap(0.1, 1, DECODE, 3),
    ]


def test_gaps_are_as_many_as_tokens_after_the_first() -> None:
    """Six tokens of the first request and four of the second, less their first ones."""
    assert sum(gap.requests for gap in found(life())) == 5 + 3
