"""From a source to a fit, without an engine."""

from pathlib import Path

import pytest
from tests.cost.test_fitted import TRUTH, steps

from chunkwise.cost.step import StepShape
from chunkwise.engine.capture import CaptureFiles
from chunkwise.errors import UserMistake
from chunkwise.lab.calibrate import checked_fit, from_place, from_run, sample, with_context_of
from chunkwise.observed import Chunk, Header, Step

LOGS = Path(__file__).parent.parent / "data" / "logs"


def test_a_log_gives_everything_but_context() -> None:
    steps = from_place(LOGS / "iterations_0.24.log")
    cost = checked_fit(steps)
    assert cost.coefficients.fixed == pytest.approx(0.006, rel=0.02)
    assert cost.coefficients.token == pytest.approx(2e-5, rel=0.02)
    assert cost.coefficients.decode == pytest.approx(5e-5, rel=0.05)
    assert cost.unknown == ("pair", "decode_context")
    assert cost.provenance.engine == "0.24.0"
    assert "context terms unknown" in cost.provenance.notes[0]


def test_the_tables_of_a_gpu_fill_in_context() -> None:
    cost = with_context_of(checked_fit(from_place(LOGS / "iterations_0.24.log")), "h100_sxm")
    assert not cost.unknown
    assert cost.coefficients.pair == pytest.approx(0.95e-9, rel=0.1)
    assert cost.coefficients.decode_context > 0
    assert cost.provenance.notes == ("context terms from the tables of h100_sxm",)
    with pytest.raises(UserMistake, match="for logs"):
        with_context_of(cost, "h100_sxm")


def write_capture(folder: Path, model: str, count: int, capture: str = "a") -> None:
    header = Header(capture, "run", 0.0, model=model, device="cpu", vllm="0.32.0")
    files = CaptureFiles(folder, header)
    for number, step in enumerate(steps(count)):
        decodes = step.shape.decodes
        tokens = step.shape.prefill_tokens
        # The same sums, as one chunk.
        context = round(step.shape.prefill_work / tokens - tokens / 2) if tokens else 0
        shape = StepShape.of([(tokens, context)]).with_decodes(decodes, step.shape.decode_context)
        files.take(
            Step(
                number,
                number + 1.0,
                TRUTH.seconds(shape),
                (Chunk(0, tokens, context),) if tokens else (),
                decodes,
                decodes,
                step.shape.decode_context,
            )
        )
    files.close()


def test_a_capture_gives_all_terms(tmp_path: Path) -> None:
    write_capture(tmp_path, "m", 300)
    cost = checked_fit(from_place(tmp_path))
    assert cost.error.p95 < 0.02
    assert cost.coefficients.pair == pytest.approx(TRUTH.pair, rel=0.05)
    assert cost.provenance.model == "m"
    assert not cost.unknown


def test_steps_that_took_no_time_are_left_out() -> None:
    engine = {"model": "m", "device": "d", "vllm": "v"}
    taken = [[[(64 + n, 0)], n % 3, 10, 0.01 + n * 1e-4, 0.01] for n in range(80)]
    stopped = [[[(64, 0)], 1, 10, 0.0, 0.0]]
    steps_ = from_run([engine, {"steps": taken + stopped}])
    assert len(steps_.timed) == 80
    assert checked_fit(steps_).error.steps == 80


def test_captures_of_two_models_are_not_mixed(tmp_path: Path) -> None:
    write_capture(tmp_path, "m", 40)
    write_capture(tmp_path, "n", 40, capture="b")
    with pytest.raises(UserMistake, match="different models"):
        from_place(tmp_path)


def test_an_engine_that_schedules_ahead_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    text = (LOGS / "iterations_0.24.log").read_text()
    for told in ("'async_scheduling': True", ""):
        log.write_text(text.replace("'async_scheduling': False", told))
        with pytest.raises(UserMistake, match="--no-async-scheduling"):
            from_place(log)


def test_a_log_without_iterations_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("hello\n")
    with pytest.raises(UserMistake, match="--enable-logging-iteration-details"):
        from_place(tmp_path / "server.log")


def test_a_sample_is_in_order_and_bounded() -> None:
    kept, seen = sample(range(10_000), 100)
    assert (len(kept), seen) == (100, 10_000)
    assert kept == sorted(kept)
    assert 3_000 < sum(kept) / 100 < 7_000
