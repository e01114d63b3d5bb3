"""What the tests of the workload room share."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

ROOT = Path(__file__).parents[2]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' + message['content'] "
    "+ '<|im_end|> ' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|> assistant' }}"
    "{% endif %}"
)


@pytest.fixture
def data() -> Path:
    return ROOT / "tests" / "data"


@pytest.fixture
def traces() -> Path:
    home = ROOT.parent / "shared" / "traces"
    if not home.is_dir():
        pytest.skip("the traces are not beside the project")
    return home


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose tokenizer makes one token of each word or sign."""
    home = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    # A limit that must not be taken over: prompts are counted whole.
    tokenizer.enable_truncation(4)
    tokenizer.save(str(home / "tokenizer.json"))
    config = {"chat_template": CHATML, "bos_token": {"content": "<s>"}}
    (home / "tokenizer_config.json").write_text(json.dumps(config))
    return home
