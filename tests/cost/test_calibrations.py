import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cost.test_fitted import WHERE, steps

from chunkwise.cost import calibrations
from chunkwise.cost.fitted import fit
from chunkwise.errors import UserMistake

HERE = replace(WHERE, model="/models/My Model", device="NVIDIA H100 80GB", engine="0.32.0")


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    cost = fit(steps(100), HERE, unknown=("pair",))
    path = calibrations.save(cost, calibrations.place(HERE, tmp_path))
    assert path.name == "my-model_nvidia-h100-80gb_tp1_pp1_vllm0.32.0.calibration.json"
    assert calibrations.load(path) == cost
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_only_the_same_machine_finds_it(tmp_path: Path) -> None:
    calibrations.save(fit(steps(100), HERE), calibrations.place(HERE, tmp_path))
    assert calibrations.find(replace(HERE, source="live"), tmp_path) is not None
    for other in (
        replace(HERE, engine="0.31.0"),
        replace(HERE, device="NVIDIA H200"),
        replace(HERE, tensor_parallel=2),
        replace(HERE, model="/elsewhere/my-model"),  # the same file name
    ):
        assert calibrations.find(other, tmp_path) is None


def test_it_is_kept_where_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path / "kept"))
    assert calibrations.save(fit(steps(100), HERE)).parent == tmp_path / "kept"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": {"fixed": -1}}, "seconds.fixed"),
        ({"seconds": {"fixed": "1"}}, "seconds.prefill"),
        ({"more": 1}, "more"),
        ({"schema": "chunkwise.calibration/9"}, "schema"),
        ({"products": [[1.0]]}, "products.0"),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = calibrations.save(fit(steps(100), HERE), tmp_path / "a.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserMistake, match=said):
        calibrations.load(path)


def test_an_unwritable_place_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserMistake, match="Cannot write"):
        calibrations.save(fit(steps(100), HERE), tmp_path / "file" / "a.json")
