"""`vllm.LLM`, whose chunking is decided by the first prompts it is given.

    from chunkwise import LLM        # instead of: from vllm import LLM

The engine is built when it is first needed: by a call that brings prompts, with
settings for those prompts; by anything else, as vLLM would build it. Invariant:
after that the object *is* vLLM's `LLM`, method for method, and whatever goes
wrong in deciding, counting or watching ends in a warning and vLLM's own engine,
never in a lost answer. What the user sets is never overruled.
"""

import functools
import inspect
import shutil
import tempfile
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from chunkwise._version import __version__
from chunkwise.engine import asking, compat, counters, counting, lengths
from chunkwise.engine.decide import Decision, decide_offline
from chunkwise.engine.deterministic import fixed
from chunkwise.engine.pieces import Pieces
from chunkwise.engine.scoring_room import scores_prompts, scoring_room
from chunkwise.engine.watch import Watch
from chunkwise.errors import UserMistake
from chunkwise.settings import Settings

vllm: Any = compat.load_vllm()
log: Any = asking.logger()

Measure = Literal["prompts", "messages"]

# What a decision may set, or must respect.
_DECIDED = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "long_prefill_token_threshold",
    "enable_chunked_prefill",
)


def _brings_prompts(theirs: Any, measure: Measure) -> Any:
    """Wrap one of vLLM's methods: decide by its prompts first, look at its answers after."""

    @functools.wraps(theirs)
    def call(self: "LLM", *args: Any, **kwargs: Any) -> Any:
        # A call that vLLM would refuse is refused here, in the same words.
        given = inspect.signature(theirs).bind(self, *args, **kwargs).arguments
        if not self._cw_built:
            self._decide(measure, given)
        elif not self._cw_sized_for_scoring:
            self._check_scoring(given.get("sampling_params"))
        outputs = theirs(self, *args, **kwargs)
        self._look(outputs)
        return outputs

    return call


class LLM(vllm.LLM):  # type: ignore[misc]
    """Usage: `LLM("my-model").generate(prompts)`; all of `vllm.LLM`'s arguments are taken.

    `chunking`: "auto", or `Settings` of yours. `deterministic`: prompts are cut at
    the same places in every run. `scoring_limit`: bytes that scoring prompts may take.
    """

    def __init__(
        self,
        model: str,
        *,
        chunking: Literal["auto"] | Settings = "auto",
        deterministic: bool = False,
        scoring_limit: int | None = None,
        **kwargs: Any,
    ) -> None:
        if chunking != "auto" and not isinstance(chunking, Settings):
            raise UserMistake('chunking is either "auto" or a chunkwise.Settings.')
        self._cw_built = False
        self._cw_model = model
        self._cw_kwargs = kwargs
        self._cw_asked = _asked(kwargs)
        self._cw_limit = scoring_limit
        self._cw_deterministic = deterministic
        self._cw_decision: Decision | None = None
        self._cw_pieces: Pieces | None = None
        self._cw_watch: Watch | None = None
        self._cw_sized_for_scoring = False
        self._cw_counters: Path | None = None
        if isinstance(chunking, Settings):
            twice = sorted(set(chunking.to_llm()) & set(self._cw_asked.to_llm()))
            if twice:
                raise UserMistake(f"{', '.join(twice)}: given twice; leave one of them out.")
            self._cw_kwargs = {**kwargs, **chunking.to_llm()}
            self._build({}, None)

    generate = _brings_prompts(vllm.LLM.generate, "prompts")
    enqueue = _brings_prompts(vllm.LLM.enqueue, "prompts")
    beam_search = _brings_prompts(vllm.LLM.beam_search, "prompts")
    chat = _brings_prompts(vllm.LLM.chat, "messages")
    enqueue_chat = _brings_prompts(vllm.LLM.enqueue_chat, "messages")

    def build_for(self, prompts: Any, sampling_params: Any = None) -> None:
        """Build the engine now, for prompts like these. Usage: `llm.build_for(examples)`."""
        if not self._cw_built:
            self._decide("prompts", {"prompts": prompts, "sampling_params": sampling_params})

    def chunking_stats(self) -> counters.ChunkingStats | None:
        """Return what the engine did so far, counted from its steps; None if not counted."""
        if not self._cw_built:
            return counters.ChunkingStats.of(counters.Counted())
        seen = counters.read(self._cw_counters) if self._cw_counters else None
        return counters.ChunkingStats.of(seen) if seen else None

    def chunking_settings(self) -> dict[str, Any]:
        """Return what the engine runs with and why, to be kept with results."""
        decision = self._cw_decision
        config = self.llm_engine.vllm_config
        return {
            "chunkwise": __version__,
            "vllm": vllm.__version__,
            "model": self._cw_model,
            "decision": decision.line if decision else "set by the user, or stock",
            "deterministic": self._cw_deterministic,
            "pieces": asdict(self._cw_pieces) if self._cw_pieces else None,
            "seed": config.model_config.seed,
            **asdict(compat.describe(config)),
        }

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there: before the engine is, that is all of it.
        mine = name.startswith(("__", "_cw_", "_repr", "_ipython"))
        if mine or self.__dict__.get("_cw_built", True):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._build({}, None)
        return getattr(self, name)

    def __repr__(self) -> str:
        if self._cw_built:
            return str(super().__repr__())
        return f"LLM(model={self._cw_model!r}, to be built for its first prompts)"

    def _decide(self, measure: Measure, given: dict[str, Any]) -> None:
        if self._cw_asked.enable_chunked_prefill is False:
            log.info("Chunkwise: chunked prefill is off, as asked; nothing is decided.")
            self._build({}, None)
            return
        try:
            found = self._measure(measure, given)
            if not found:
                raise ValueError("the prompts are of a kind whose length is not known beforehand")
            [budget, seqs] = next((d.budget, d.seqs) for d in compat.defaults() if d.usage == "llm")
            room = scoring_room(
                self._cw_model, self._cw_kwargs, self._cw_limit, given.get("sampling_params")
            )
            decision = decide_offline(found, self._cw_asked, budget, seqs, room)
            self._cw_sized_for_scoring = room is not None
        except UserMistake:
            raise
        except Exception as error:
            log.warning("Chunkwise cannot decide (%r): vLLM's own settings are used.", error)
            self._build({}, None)
            return
        log.info("Chunkwise: %s", decision.line)
        self._cw_decision = decision
        self._cw_watch = Watch(decision.verdict)
        self._build(decision.settings.to_llm(), decision.pieces)

    def _measure(self, measure: Measure, given: dict[str, Any]) -> list[int] | None:
        def tokenizer() -> Any:
            return compat.tokenizer(self._cw_kwargs.get("tokenizer") or self._cw_model)

        if measure == "prompts":
            return lengths.prompt_lengths(given["prompts"], tokenizer)
        names = ("chat_template", "add_generation_prompt", "continue_final_message")
        options = {name: given[name] for name in names if given.get(name) is not None}
        return lengths.chat_lengths(given["messages"], tokenizer, **options)

    def _build(self, chosen: dict[str, Any], pieces: Pieces | None) -> None:
        if self._cw_deterministic:
            chosen, pieces = fixed(chosen, self._cw_kwargs)
        self._cw_built = True  # from here on, a missing attribute is an error
        kwargs = {**self._cw_kwargs, **chosen}
        if kwargs.get("scheduler_cls"):  # the user's own: it is neither counted nor told anything
            super().__init__(self._cw_model, **kwargs)
            return
        try:
            path = self._shared_file()
            with counting.orders(path, pieces):
                super().__init__(self._cw_model, **{**kwargs, "scheduler_cls": counting.PATH})
            self._cw_counters, self._cw_pieces = path, pieces
        except Exception as error:
            if self._cw_deterministic:
                raise  # a plain engine would not be what was asked for
            log.warning(
                "Chunkwise cannot build its engine (%r): vLLM's own is built instead.", error
            )
            self._cw_decision = self._cw_watch = None
            super().__init__(self._cw_model, **self._cw_kwargs)

    def _check_scoring(self, params: Any) -> None:
        """Say it if prompts are scored on an engine that was built for something else."""
        if not scores_prompts(params):
            return
        self._cw_sized_for_scoring = True  # said once
        config = self.llm_engine.vllm_config
        budget = config.scheduler_config.max_num_batched_tokens
        kwargs = {**self._cw_kwargs, "max_num_batched_tokens": budget}
        room = scoring_room(self._cw_model, kwargs, self._cw_limit, params)
        if room is not None and (fits := room.fits(config.model_config.max_model_len)) < budget:
            log.warning(
                "Chunkwise: this engine was not built for scoring prompts: steps of %d tokens "
                "may run out of memory. Use max_num_batched_tokens=%d next time.",
                budget,
                fits,
            )

    def _shared_file(self) -> Path:
        home = Path(tempfile.mkdtemp(prefix="chunkwise-"))
        weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        counters.create(home / "counters")
        return home / "counters"

    def _look(self, outputs: Any) -> None:
        """Compare what came with what was decided for; say it once if it is another kind."""
        if self._cw_watch is None:
            return
        try:
            told = self._cw_watch.look(outputs, self.chunking_stats())
        except Exception as error:
            log.warning("Chunkwise stopped watching (%r); nothing else changes.", error)
            self._cw_watch = None
            return
        for line in told:
            log.warning("Chunkwise: %s", line)


def _asked(kwargs: dict[str, Any]) -> Settings:
    """Return which of the settings we decide the user chose; a default spelled out is no choice."""
    usual = asking.argument_defaults()
    return Settings.parse(
        {
            name: kwargs[name]
            for name in _DECIDED
            if kwargs.get(name) is not None and kwargs[name] != usual.get(name)
        },
        source="LLM(…)",
    )
