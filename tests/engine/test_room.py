from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkwise.engine.room import free_bytes, weight_bytes
from chunkwise.errors import EngineTrouble


def test_free_memory_is_read(tmp_path: Path) -> None:
    assert 2**20 < free_bytes() < 2**50
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\n")
    with pytest.raises(EngineTrouble, match="does not tell"):
        free_bytes(tmp_path / "meminfo")


@pytest.mark.engine
def test_weights_of_a_known_shape(smollm2: Path) -> None:
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(smollm2)
    shaped = SimpleNamespace(hf_config=config, dtype=torch.float32, model=str(smollm2))
    on_disk = (smollm2 / "model.safetensors").stat().st_size
    assert weight_bytes(SimpleNamespace(model_config=shaped)) == pytest.approx(on_disk, rel=0.01)


@pytest.mark.engine
def test_an_architecture_that_only_vllm_knows(smollm2: Path) -> None:
    import torch
    from transformers import PretrainedConfig

    shaped = SimpleNamespace(hf_config=PretrainedConfig(), dtype=torch.float32, model=str(smollm2))
    on_disk = (smollm2 / "model.safetensors").stat().st_size
    assert weight_bytes(SimpleNamespace(model_config=shaped)) == on_disk
