"""Log-likelihoods of continuations, each shared prefix computed once where vLLM allows.

Asking vLLM for `prompt_logprobs` switches the prefix cache off, because what is
cached has no log-probabilities; so k choices prefill their question k times. But
only the continuation's are wanted, and two ways give exactly those: a single-token
choice is read off one generated token, and a longer one may read the cache as long
as the hit ends before the continuation. Invariant: every number comes from
positions that this request computed; where the cache reached too far, the request
is scored again without it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat

# The most token ids whose log-probabilities vLLM returns for one generated token.
MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class Pair:
    """A context and one continuation of it, in token ids; neither is empty."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """The continuation's log-probability, and whether greedy decoding would write it."""

    logprob: float
    greedy: bool


def score(llm: Any, pairs: Sequence[Pair], **generate_options: Any) -> list[Scored]:
    """Score all pairs, in their order. Usage: `score(llm, [Pair(question, choice)])`."""
    if not pairs:
        return []
    found: dict[Pair, Scored] = {}
    single, longer = _sort(pairs)
    if hasattr(llm, "build_for"):  # sized for scoring, whatever is sent first
        llm.build_for([_prompt(pair) for pair in pairs], _scoring_params(True))
    found |= _score_longer(llm, longer, generate_options)
    found |= _score_single(llm, single, generate_options)
    return [found[pair] for pair in pairs]


def _sort(pairs: Sequence[Pair]) -> tuple[dict[tuple[int, ...], list[int]], list[Pair]]:
    """Split into single-token choices by context, and the rest in the order of their prefixes."""
    choices: dict[tuple[int, ...], set[int]] = defaultdict(set)
    longer: set[Pair] = set()
    for pair in pairs:
        # vLLM pads shorter lists of choices with token 0, so that one is not asked for.
        if len(pair.continuation) == 1 and pair.continuation != (0,) and compat.can_read_choices():
            choices[pair.context].add(pair.continuation[0])
        else:
            longer.add(pair)
    single: dict[tuple[int, ...], list[int]] = {}
    for context, tokens in sorted(choices.items()):
        if len(tokens) <= MOST_CHOICES:
            single[context] = sorted(tokens)
        else:
            longer |= {Pair(context, (token,)) for token in tokens}
    return single, sorted(longer, key=lambda pair: pair.context + pair.continuation)


def _score_single(
    llm: Any, choices: dict[tuple[int, ...], list[int]], options: dict[str, Any]
) -> dict[Pair, Scored]:
    if not choices:
        return {}
    prompts = [{"prompt_token_ids": list(context)} for context in choices]
    params = [_choice_params(tokens) for tokens in choices.values()]
    found = {}
    for context, output in zip(choices, llm.generate(prompts, params, **options), strict=True):
        generated = output.outputs[0]
        [by_token] = generated.logprobs
        for token in choices[context]:
            found[Pair(context, (token,))] = Scored(
                by_token[token].logprob, generated.token_ids[0] == token
            )
    return found


def _score_longer(llm: Any, pairs: list[Pair], options: dict[str, Any]) -> dict[Pair, Scored]:
    found: dict[Pair, Scored] = {}
    for read_cache in (True, False):
        again = []
        prompts = [_prompt(pair) for pair in pairs]
        outputs = llm.generate(prompts, _scoring_params(read_cache), **options) if pairs else ()
        for pair, output in zip(pairs, outputs, strict=True):
            # The continuation's first token is predicted at the context's last position.
            if (output.num_cached_tokens or 0) < len(pair.context):
                found[pair] = _read(pair, output.prompt_logprobs)
            else:
                again.append(pair)
        pairs = again
    return found


def _read(pair: Pair, prompt_logprobs: Any) -> Scored:
    # From the end: what lies before may be missing, or not computed.
    rows = list(prompt_logprobs[-len(pair.continuation) :])
    own = [row[token] for token, row in zip(pair.continuation, rows, strict=True)]
    return Scored(
        logprob=sum(entry.logprob for entry in own),
        greedy=all(
            max(row, key=lambda token, row=row: row[token].logprob) == token  # type: ignore[misc]
            for token, row in zip(pair.continuation, rows, strict=True)
        ),
    )


def _prompt(pair: Pair) -> dict[str, list[int]]:
    return {"prompt_token_ids": [*pair.context, *pair.continuation]}


def _scoring_params(read_cache: bool) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        temperature=0,
        prompt_logprobs=1,
        max_tokens=1,
        detokenize=False,
        skip_reading_prefix_cache=not read_cache,
    )


def _choice_params(tokens: list[int]) -> Any:
    """One greedy token, and with it the log-probabilities of these."""
    from vllm import SamplingParams

    return SamplingParams(
        temperature=0, max_tokens=1, logprob_token_ids=tokens, detokenize=False, ignore_eos=True
    )
