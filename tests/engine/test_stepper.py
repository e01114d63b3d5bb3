"""The real engine: what it answers, how it cuts, and that recording changes nothing."""

from pathlib import Path

import pytest

from chunkwise.engine.stepper import Stepper
from chunkwise.lab.prompts import prompt_ids

pytestmark = pytest.mark.engine


def finish(engine: Stepper) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    while engine.busy:
        for token in engine.step():
            times.setdefault(token.request_id, []).append(token.seconds)
    return times


def test_a_lone_prompt_is_cut_by_the_budget(small_budget_engine: Stepper, smollm2: Path) -> None:
    from transformers import AutoTokenizer

    ids = prompt_ids(AutoTokenizer.from_pretrained(smollm2), 1, 600)
    small_budget_engine.add("lone", ids, 3)
    times = finish(small_budget_engine)
    # vLLM does not apply the per-prompt cap to the only request.
    assert small_budget_engine.prefill_chunks("lone") == [256, 256, 88]
    assert len(times["lone"]) == 3
    assert times["lone"] == sorted(times["lone"])


def test_the_cap_lets_others_in(small_budget_engine: Stepper, smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    small_budget_engine.add("long", prompt_ids(tokenizer, 2, 600), 1)
    small_budget_engine.add("short", prompt_ids(tokenizer, 3, 40), 1)
    times = finish(small_budget_engine)
    assert max(small_budget_engine.prefill_chunks("long")[:-1]) <= 256
    assert small_budget_engine.prefill_chunks("long")[0] == 64
    assert small_budget_engine.prefill_chunks("short") == [40]
    assert times["short"][0] < times["long"][0]


def test_steps_are_within_the_budget(small_budget_engine: Stepper) -> None:
    steps = small_budget_engine.steps
    assert steps
    assert all(sum(c.tokens for c in step.chunks) + step.decodes <= 256 for step in steps)
    assert any(step.decodes and not step.chunks for step in steps)


def test_greedy_text_is_what_transformers_says(small_budget_engine: Stepper, smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from vllm import SamplingParams

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    small_budget_engine._engine.add_request(
        "text", {"prompt_token_ids": list(ids)}, SamplingParams(temperature=0, max_tokens=12)
    )
    [output] = [
        out
        for _ in iter(lambda: small_budget_engine.busy, False)
        for out in small_budget_engine._engine.step()
        if out.finished
    ]
    reference = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    expected = reference.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids)),
        max_new_tokens=12,
        do_sample=False,
    )[0, len(ids) :]
    assert list(output.outputs[0].token_ids) == expected.tolist()
    assert "Paris" in output.outputs[0].text
