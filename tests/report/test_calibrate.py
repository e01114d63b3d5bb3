from tests.cost.test_fitted import WHERE, steps

from chunkwise.cost.fitted import fit
from chunkwise.cost.step import StepShape
from chunkwise.cost.words import overview
from chunkwise.report.calibrate import buys_sentences


def test_a_target_is_said_as_people_say_it() -> None:
    cost = fit(steps(300), WHERE)
    [said] = buys_sentences(overview(cost, [0.05], StepShape.of(decodes=[1000] * 8)))
    assert said.startswith("50ms buys ")
    assert " tokens at context 0, " in said
    assert said.endswith(" at context 32k.")


def test_what_buys_nothing_is_said_too() -> None:
    cost = fit(steps(300), WHERE)
    [said] = buys_sentences(overview(cost, [0.0001], StepShape.of(decodes=[1000] * 8)))
    assert said.startswith("0ms buys no tokens at context 0")
