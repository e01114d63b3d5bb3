"""Chunkwise as a model of lm-evaluation-harness: `--model chunkwise`.

It is lm-eval's own vLLM model, with `chunkwise.LLM` inside and log-likelihoods
scored by `engine/scoring.py`. lm-eval finds models by import alone (it reads no
entry points), so `chunkwise lm-eval …` imports this and hands over to lm-eval's
own command line. Invariant: arguments, truncation, order of results and caching
are lm-eval's; only how the engine gets there differs.
"""

import importlib.metadata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from unittest import mock

from chunkwise.engine import asking, compat
from chunkwise.engine.scoring import Pair, score
from chunkwise.errors import EngineTrouble, UserMistake

NAME = "chunkwise"


@contextmanager
def vllm_by_any_name() -> Iterator[None]:
    """Let `version("vllm")` answer for builds that are distributed under another name."""
    asked = importlib.metadata.version
    found = compat.installed()
    compat.on_cpu()  # vLLM asks for its own name to find its platform: let it do so first

    def version(name: str) -> str:
        return found.version if name == "vllm" and found else asked(name)

    with mock.patch.object(importlib.metadata, "version", version):
        yield


def register() -> type:
    """Make `--model chunkwise` known to lm-eval and return the class. Usage: `register()`."""
    try:
        from lm_eval.api.registry import model_registry
    except ImportError:
        raise EngineTrouble(
            "lm-evaluation-harness is not installed here: run `pip install 'chunkwise[eval]'`."
        ) from None
    import lm_eval.models  # noqa: F401 - fills the registry

    compat.load_vllm()
    if NAME not in model_registry:
        model_registry.register(NAME)(_model_class())
    found: type = model_registry.get(NAME)
    return found


def _model_class() -> type:
    with vllm_by_any_name():
        from lm_eval.models import vllm_causallms as theirs

    from chunkwise.engine.llm import LLM

    class Chunkwise(theirs.VLLM):  # type: ignore[misc]
        """lm-eval's vLLM model; takes its arguments, `deterministic` and `scoring_limit`."""

        def __init__(self, pretrained: str, **kwargs: Any) -> None:
            ours = {
                name: kwargs.pop(name)
                for name in ("deterministic", "scoring_limit")
                if name in kwargs
            }
            if int(kwargs.get("data_parallel_size", 1)) > 1:
                raise EngineTrouble(
                    "--model chunkwise runs one engine: leave out data_parallel_size, or use "
                    "--model vllm."
                )
            # lm-eval asks the engine about the model before it has any prompt: the
            # model's configuration answers, and the engine waits for the prompts.
            with mock.patch.object(theirs, "LLM", _Waiting):
                super().__init__(pretrained, **kwargs)
            self._waiting: _Waiting = vars(self)["model"]
            self.model = LLM(**{**self.model_args, **ours})

        @property
        def max_length(self) -> int:
            known = self._max_length or self._waiting.llm_engine.model_config.max_model_len
            return int(known)

        def _loglikelihood_tokens(
            self, requests: Sequence[Any], disable_tqdm: bool = False
        ) -> list[tuple[float, bool]]:
            longest = self.max_length - 1  # vLLM generates at least one token
            pairs = [_cut(context, rest, longest) for _, context, rest in requests]
            options = {"use_tqdm": not disable_tqdm, "lora_request": self.lora_request}
            answers = [(item.logprob, item.greedy) for item in score(self.model, pairs, **options)]
            for (key, _, _), answer in zip(requests, answers, strict=True):
                if key is not None:  # None: part of a rolling one, which caches its sum
                    self.cache_hook.add_partial("loglikelihood", key, answer)
            return answers

        def get_model_info(self) -> dict[str, Any]:
            """Return what lm-eval keeps with the results: the settings, and what was done."""
            stats = self.model.chunking_stats()
            return {
                "chunkwise": self.model.chunking_settings(),
                "chunkwise_stats": asdict(stats) if stats else None,
            }

    return Chunkwise


class _Waiting:
    """Stands where the engine will be, and knows the model's configuration only."""

    def __init__(self, **model_args: Any) -> None:
        self.llm_engine = SimpleNamespace(model_config=asking.model_config(model_args))


def _cut(context: list[int], continuation: list[int], longest: int) -> Pair:
    """Truncate from the left, as lm-eval does."""
    tokens = (context + continuation)[-longest:]
    kept = len(tokens) - len(continuation)
    if kept < 1:
        raise UserMistake(
            f"A continuation of {len(continuation)} tokens leaves no context within {longest}: "
            f"raise max_model_len."
        )
    return Pair(tuple(tokens[:kept]), tuple(tokens[kept:]))
