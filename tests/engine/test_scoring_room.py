"""How large a step may be when prompts are scored, asked before an engine is built."""

from pathlib import Path
from typing import Any

import pytest

from chunkwise.engine.scoring_room import scoring_room
from chunkwise.errors import UserMistake

pytestmark = pytest.mark.engine

LIMIT = 2**28


def scoring() -> Any:
    from vllm import SamplingParams

    return SamplingParams(prompt_logprobs=1, max_tokens=1)


def test_nothing_is_sized_where_nothing_is_scored(smollm2: Path) -> None:
    from vllm import SamplingParams

    assert scoring_room(str(smollm2), {}, None, SamplingParams()) is None
    assert scoring_room(str(smollm2), {}, None, None) is None
    room = scoring_room(str(smollm2), {}, None, [SamplingParams(), scoring()])
    assert room
    assert room.shape.dtype == "bfloat16"  # what vLLM makes of float32
    assert 0 < room.limit < 2**50


def test_a_budget_over_the_limit_is_refused_before_anything_is_built(smollm2: Path) -> None:
    from chunkwise import LLM

    llm = LLM(str(smollm2), dtype="float32", max_num_batched_tokens=4096, scoring_limit=LIMIT)
    with pytest.raises(UserMistake, match="set max_num_batched_tokens to ") as caught:
        llm.generate([{"prompt_token_ids": [5] * 3000}], scoring())
    assert "llm_engine" not in vars(llm)
    right = int(str(caught.value).rsplit(" to ", 1)[1].split()[0])
    room = {"dtype": "float32", "max_num_batched_tokens": right}
    assert scoring_room(str(smollm2), room, LIMIT, scoring())


def test_a_model_of_unknown_shape_is_left_to_vllm() -> None:
    assert scoring_room("nobody/knows-this", {}, None, scoring()) is None
