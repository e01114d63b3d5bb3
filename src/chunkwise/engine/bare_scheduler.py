"""The installed vLLM's own scheduler and KV manager, with no model behind them.

Each step's output is made up (a token for every request whose prompt is done),
everything else is what vLLM does at this version: order, chunks, prefix cache,
preemption. Invariant: the scheduler's public calls only (`add_request`,
`schedule`, `update_from_output`), in the engine's own order, so that any
scheduler class named by its dotted path runs here unchanged. Beside them a step
costs little: requests that decode are walked once, for the tokens that came out.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

from chunkwise.cost.step import StepShape
from chunkwise.engine import compat
from chunkwise.engine.bare_config import bare_config
from chunkwise.engine.bare_prefix import MadeUpHashes, Prefix
from chunkwise.engine.compat_bare import build_scheduler
from chunkwise.engine.glide import Glide
from chunkwise.engine.promises import CLASS_ARGUMENT
from chunkwise.settings import Settings

TOKEN: list[int] = [1]
NONE_YET: list[int] = []
SAMPLED, STILL_PREFILLING = 0, 1  # rows of the made-up output


class Batch:
    """One scheduled step: what it carries, and what vLLM wants back with its result."""

    __slots__ = ("cached", "output", "partial", "preempted", "shape")

    def __init__(self, output: Any, shape: StepShape):
        self.output = output
        self.shape = shape
        self.partial: list[str] = []  # requests whose prompt goes on after it
        self.cached: list[tuple[int, int]] = []  # request, tokens that the prefix cache gave it
        self.preempted = 0


@dataclass(frozen=True, slots=True)
class Produced:
    """What came out of a step: a token each for these requests, of which some ended."""

    tokens: list[int]
    finished: list[int]


EMPTY = StepShape()
NOTHING = Produced([], [])


class BareScheduler:
    """Usage: `s = BareScheduler(settings, 4096, 1000); s.add(0, 900, 20); s.schedule()`.

    Requests are numbers. `blocks` counts the KV pool in blocks, one of which
    vLLM keeps for itself. `scheduler_cls` is a dotted path, as vLLM takes it.
    """

    def __init__(
        self,
        settings: Settings,
        max_model_len: int,
        blocks: int,
        scheduler_cls: str | None = None,
    ):
        compat.load_vllm()
        from vllm import SamplingParams
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request

        config = bare_config(settings, max_model_len, blocks)
        self.scheduler = build_scheduler(config, scheduler_cls)
        self.resolved = compat.describe(config)
        self.block_size: int = config.cache_config.block_size
        self.depth = 2 if self.resolved.async_scheduling else 1
        """Batches in flight at most, as vLLM's engine core keeps them."""
        self._hashes = MadeUpHashes(self.block_size) if self.resolved.prefix_caching else None
        self._request: Any = Request
        self._params: Any = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
        self._kinds: dict[str, Any] = {}
        self._row: dict[str, int] = {}
        self._result: Any = ModelRunnerOutput(
            req_ids=[], req_id_to_index=self._row, sampled_token_ids=[TOKEN, NONE_YET]
        )
        self._prefilling: dict[str, Any] = {}
        self._unfinished = 0
        self._glide = Glide(self.scheduler, self.block_size)

    def add(
        self,
        number: int,
        prompt: int,
        output: int,
        prefix: Prefix | None = None,
        arrival: float = 0.0,
        kind: str | None = None,
    ) -> None:
        """Queue a request. `prefix` names what it shares with others; `kind` is its class."""
        name = str(number)
        if self._hashes is not None:
            self._hashes.begin(prompt, prefix)
        request = self._request(
            request_id=name,
            prompt_token_ids=[0] * prompt,
            sampling_params=self._params if kind is None else self._params_of(kind),
            pooling_params=None,
            arrival_time=arrival,
            block_hasher=self._hashes,
        )
        request.max_tokens = output
        self._row[name] = SAMPLED
        self._unfinished += 1
        self.scheduler.add_request(request)

    def _params_of(self, kind: str) -> Any:
        if kind not in self._kinds:
            params = copy(self._params)
            params.extra_args = {CLASS_ARGUMENT: kind}
            self._kinds[kind] = params
        return self._kinds[kind]

    @property
    def unfinished(self) -> int:
        """How many requests have not ended yet."""
        return self._unfinished

    @property
    def kv_use(self) -> float:
        """The share of the KV pool that is in use."""
        return float(self.scheduler.get_kv_cache_usage())

    @property
    def counts(self) -> tuple[int, int]:
        """How many requests run and how many wait."""
        running, waiting = self.scheduler.get_request_counts()
        return running, waiting

    def schedule(self) -> Batch:
        """Let vLLM decide the next step, which may be empty."""
        output = self.scheduler.schedule()
        scheduled: dict[str, int] = output.num_scheduled_tokens
        known = output.scheduled_cached_reqs
        decode_context = sum(known.num_computed_tokens)
        batch = Batch(output, EMPTY)
        requests = self.scheduler.requests
        prefilling = self._prefilling
        for item in output.scheduled_new_reqs:
            prefilling[item.req_id] = requests[item.req_id]
            decode_context += item.num_computed_tokens
            if item.num_computed_tokens:
                batch.cached.append((int(item.req_id), item.num_computed_tokens))
        for name in known.resumed_req_ids:
            prefilling[name] = requests[name]
        if output.preempted_req_ids:
            batch.preempted = len(output.preempted_req_ids)
        tokens = chunks = 0
        work = 0.0
        for name, request in list(prefilling.items()):
            chunk = scheduled.get(name)
            if chunk is None:
                continue
            # schedule() has already advanced the request past this step's tokens.
            context = request.num_computed_tokens - chunk
            decode_context -= context
            tokens += chunk
            chunks += 1
            work += chunk * (context + chunk / 2)
            if request.is_prefill_chunk:
                batch.partial.append(name)
            else:
                del prefilling[name]
        decodes = len(scheduled) - chunks
        batch.shape = StepShape(tokens, chunks, work, decodes, decode_context)
        return batch

    def update(self, batch: Batch) -> Produced:
        """Hand a step's result back, oldest step first; return what came out of it."""
        row = self._row
        for name in batch.partial:
            row[name] = STILL_PREFILLING
        outputs = self.scheduler.update_from_output(batch.output, self._result).get(0)
        for name in batch.partial:
            row[name] = SAMPLED
        if outputs is None:
            return NOTHING
        came = outputs.outputs
        finished = [int(item.request_id) for item in came if item.finish_reason is not None]
        for number in finished:
            del row[str(number)]
        self._unfinished -= len(finished)
        return Produced([int(item.request_id) for item in came if item.new_token_ids], finished)

    def glide(self, last: Batch | None) -> Glide | None:
        """Return a way to take many steps at once, if the last one and the state allow it.

        `last` is the batch in flight, or the one before if none is.
        """
        if last is None or self._prefilling or last.shape.chunks:
            return None
        running, waiting = self.scheduler.get_request_counts()
        return None if waiting or not running else self._glide
