"""A comparison on the terminal and as JSON: no word stronger than the statistics."""

import json

import pytest
from tests.made_runs import TWIN, asked, rounds, run

from chunkwise.lab.statistics import compare
from chunkwise.report.compare import as_json, show
from chunkwise.report.compare_facts import sentences

MEAN = "[red]x[/red]\x1b[31m"


def test_a_claim_is_a_sentence_with_its_interval() -> None:
    found = compare(asked("arm"), rounds(8, arm=0.62))
    line = next(one for one in sentences(found) if "P99 TTFT" in one)
    assert line.startswith("arm: P99 TTFT is 0.6")
    assert "× the baseline's (0." in line
    assert line.endswith(": better.")
    assert not any("no benefit" in one for one in sentences(found))


def test_no_benefit_is_said() -> None:
    found = sentences(compare(asked("arm"), rounds(10, noise=0.01, arm=1.0)))
    assert found[0].startswith("arm: no benefit")
    assert any("no difference in median TTFT 1.0" in one for one in found)


def test_worse_is_no_benefit_either() -> None:
    found = sentences(compare(asked("arm"), rounds(8, arm=1.3)))
    assert found[0].startswith("arm: no benefit")
    assert any(one.endswith(": worse.") for one in found)


def test_noise_is_said() -> None:
    found = sentences(compare(asked("arm"), rounds(6, noise=0.5, arm=1.1)))
    assert found[0].startswith("arm: too noisy to tell")
    assert not any("worse" in one or "better" in one for one in found)


def test_what_went_wrong_is_said() -> None:
    runs = [run(arm, 0, failed={"timed out": 3}) for arm in ("default", TWIN, "arm")]
    found = sentences(compare(asked("arm"), runs))
    assert "arm: 3 of 27 requests failed." in found
    assert any("Only 1 of at least 5 rounds are complete" in one for one in found)


def test_a_restless_machine_is_said() -> None:
    runs = [run(arm, n, by) for n in range(8) for arm, by in (("default", 1.0), (TWIN, 1.5))]
    assert any("differs from its own twin" in one for one in sentences(compare(asked(), runs)))


def test_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    show(compare(asked(MEAN), rounds(6, **{MEAN: 1.3})))
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown  # as it stands, not as a style
    assert "\x1b[31m" not in shown
    for word in ("noise floor", "change (95%)", "P99 gap", "goodput share", "The runs", "worse"):
        assert word in shown
    assert "points" in shown
    assert "chunkwise compare mixed --server '--seed 1'" in shown


@pytest.mark.parametrize("count", [0, 1, 6])
def test_json_is_whole_at_any_time(count: int) -> None:
    found = compare(asked("arm"), rounds(count, arm=1.2))
    content = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert content["schema"] == "chunkwise.compare/1"
    assert content["rounds"] == count
    assert len(content["effects"]) == len(found.metrics)
    assert len(content["runs"]) == 3 * count
    if count:
        assert content["runs"][0]["ttft"]["p99"]["high"] is None  # 24 requests have no such end
        assert content["runs"][0]["metrics"]["gap_p99"] > 0
