"""Pacing in a live engine: vLLM's state into plain numbers, the decision into its levers.

Invariant: vLLM's own `schedule()` makes every step; before it we may lower the
step's budget, cap a prompt, and change who comes first; afterwards all of that
is as it was. A step's work is one pass over those who run and one over a bounded
head of those who wait. Time is the steady clock's; targets run from `add_request`.
"""

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any

from chunkwise.cost.live import LiveCost
from chunkwise.cost.step import StepShape
from chunkwise.engine import clock
from chunkwise.engine.compat_levers import Levers, give_back_queue, put_cap, take_cap_away
from chunkwise.engine.pacing_counts import PacingCounts
from chunkwise.engine.promises import Promises
from chunkwise.engine.prompts import Prompts
from chunkwise.engine.self_calibration import Keeper
from chunkwise.engine.watcher import Tracked
from chunkwise.observed import Step
from chunkwise.pacing import targets
from chunkwise.pacing.decision import Decision, Moment, decide
from chunkwise.pacing.job import Job
from chunkwise.pacing.margin import NEAR, Margin
from chunkwise.pacing.ramp import Ramp
from chunkwise.pacing.share import Share, too_long
from chunkwise.pacing.watchdog import WENT_BACK, Watchdog

KEEP_EVERY = 4096  # steps between two copies of what was learned
LOOK_EVERY = 8  # steps between two looks of the watchdog
RETARGET = 64  # steps between two looks at what the engine can keep at all
LEARN_DECODES = 4  # of decode-only steps, one in so many teaches
SETTLED = 1000  # steps that taught the cost; after them
LEARN_SETTLED = 4  # ... one in so many is enough,
SURPRISE = 0.25  # ... and each that was predicted worse than this
BETWEEN_MEMORY = 0.95  # of the mean time between two steps
MOST_BETWEEN = 0.25  # of the target


class Plan:
    """What was expected of one step, kept until its result comes."""

    __slots__ = ("allowance", "near", "output", "target")

    def __init__(self, target: float, allowance: float, near: bool):
        self.target = target
        self.allowance = allowance
        self.near = near
        self.output: Any = None


class Pacer:
    """Usage: `pacer.set_levers(scheduler)`, vLLM's `schedule()`, `pacer.restore(scheduler)`."""

    def __init__(
        self,
        scheduler: Any,
        levers: Levers,
        promises: Promises,
        cost: LiveCost,
        prefilling: Mapping[str, Tracked],
        largest_known: int = 0,
        expected: bool = False,
    ):
        self.cost = cost
        self.counts = PacingCounts()
        self.keeper: Keeper | None = None
        self.cap_error: Exception | None = None
        self._levers = levers
        self._promises = promises
        self._prompts = Prompts(scheduler, levers, promises, cost, prefilling)
        self._prefilling = prefilling
        self._margin = Margin()
        self._ramp = Ramp(largest_known, expected)
        self._share = Share()
        self._dog = Watchdog()
        self.budget: int = scheduler.max_num_scheduled_tokens
        self._seqs: int = getattr(scheduler, "max_num_active_reqs", None) or int(
            scheduler.max_num_running_reqs
        )
        self._largest: int = scheduler.scheduler_config.long_prefill_token_threshold
        self._caps: dict[str, int] | None = None  # while a step is decided
        self._asks = False  # vLLM has our cap
        self._plan: Plan | None = None
        self._flight: deque[Plan] = deque()
        self._last_end: float | None = None
        self._between = 0.0  # mean seconds from a step's end to the next one's beginning
        self._reachable: dict[float, float] = {}
        self._least = 0.0  # that a step beside decodes is allowed, whatever the margin says
        self._implied = inf
        self._steps = 0
        self._untaught = 0  # steps since one taught the cost
        self._looked = 0  # the step that the watchdog last looked at
        self._passing = 0  # prefill tokens since then
        self._held = False  # it follows somebody who generates
        self._leave_alone = False  # the next step: the last one came out empty
        if levers.queue is not None:
            scheduler.waiting = levers.queue

    def added(self, request: Any) -> None:
        """A request came in."""
        self._prompts.added(request, clock.now())

    def set_levers(self, scheduler: Any) -> None:
        """Decide the coming step and make vLLM keep to it."""
        self._plan = None
        running, prompts = scheduler.running, self._prompts
        begun = prompts.begun(clock.now())
        may_begin = bool(prompts) and len(running) < self._seqs
        if not begun and not may_begin:
            return
        if self._leave_alone:
            self._leave_alone = False
            self.counts.fallbacks += 1
            return
        moment = self._moment(running, begun)
        room = moment.free_blocks - moment.promised_blocks - moment.decodes
        waiting: list[Job] = []
        blocked: list[Job] = []
        if may_begin and not (running and prompts.none_fits(room)):
            waiting, blocked = prompts.waiting(moment.now, self.budget)
            if not begun and not waiting and not blocked:
                self._plan = None
                return
        moment.oldest = self._oldest(begun, moment.now)
        found = decide(moment, begun + waiting, self.cost)
        if waiting and not blocked and found.tokens.keys().isdisjoint([j.name for j in waiting]):
            prompts.none_began(waiting, room)
        if moment.oldest is not None and moment.oldest.name in found.tokens:
            self._share.served()
        self._move(scheduler, found, begun, blocked, moment.decode_tokens)

    def cap(self, request: Any, tokens: int) -> int:
        """Return how many of these prefill tokens a request may have in this step."""
        if self._caps is None:
            return tokens
        name = request.request_id
        given = self._caps.get(name)
        if given is not None:
            # vLLM fills a last token up with drafts, and wants them all or none.
            return tokens if tokens <= self._levers.decode_tokens else min(tokens, given)
        queue = self._levers.queue
        if name in self._prefilling or (queue is not None and name in queue):
            return 0
        return tokens  # a decode, or one that vLLM keeps elsewhere

    def asked(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Answer vLLM, which is about to give a request so many tokens."""
        assert self._levers.cap is not None
        if self.cap_error is None:
            try:
                num_new_tokens = self.cap(request, num_new_tokens)
            except Exception as error:
                self.cap_error = error  # vLLM is at work: nothing is handed back in the middle
        return self._levers.cap(request, num_computed_tokens, num_new_tokens)

    def restore(self, scheduler: Any) -> None:
        """Leave vLLM's scheduler as it was."""
        if self._caps is None:
            return
        self._caps = None
        if self._asks:
            self._asks = False
            take_cap_away(scheduler)
        scheduler.max_num_scheduled_tokens = self.budget
        if self._levers.queue is not None:
            self._levers.queue.put_back()

    def leave(self, scheduler: Any, why: str) -> None:
        """Hand everything back for good."""
        self.counts.acting = False
        self.counts.ejected = why
        self._caps = None
        take_cap_away(scheduler)
        scheduler.max_num_scheduled_tokens = self.budget
        if self._levers.queue is not None and scheduler.waiting is self._levers.queue:
            give_back_queue(scheduler, self._levers.queue)

    def scheduled(self, output: Any) -> None:
        """vLLM has decided the step."""
        self._prompts.scheduled(output, clock.now())
        if output.num_scheduled_tokens:
            plan = self._plan or Plan(inf, inf, False)
            plan.output = output
            self._flight.append(plan)
        elif self._plan is not None:
            self._leave_alone = True

    def ended(self, output: Any, step: Step, at: float) -> str | None:
        """Learn from a step; return why to give up, if there is a reason."""
        plan = None
        while self._flight and plan is None:
            first = self._flight.popleft()
            plan = first if first.output is output else None
        self._steps += 1
        seconds, last = step.seconds, self._last_end
        self._last_end = at
        gap = seconds
        if step.decodes and last is not None and at > last:
            gap = max(seconds, at - last)
            self._between = BETWEEN_MEMORY * self._between + (1 - BETWEEN_MEMORY) * (gap - seconds)
        tokens, reason = 0, None
        if step.chunks or not self._steps % LEARN_DECODES:
            shape = _shape(step)
            tokens = shape.prefill_tokens
            predicted = self.cost.seconds(shape)
            error = abs(predicted / seconds - 1) if seconds else 0.0
            if tokens and step.decodes and plan is not None and self._heeded(plan.target):
                self._ramp.learn(tokens, gap, plan.target)
                if plan.near and self._margin.could_help(gap, predicted):
                    self._margin.learn(gap, plan.target)
                    self.counts.margin = self._margin.value
                self.counts.step(gap / plan.allowance, error)
            elif tokens:
                self._ramp.saw(tokens)
            # What is known well is asked about now and then, and whenever it is wrong.
            self._untaught += 1
            if self._untaught >= LEARN_SETTLED or self.cost.steps < SETTLED or error > SURPRISE:
                self._untaught = 0
                self.cost.update(shape, seconds)
            if self._ramp.done:
                reason = self._dog.predicted(predicted, seconds)
        if self.keeper is not None and not self._steps % KEEP_EVERY:
            self.keeper.offer(self.cost)
        self._passing += tokens
        if last is not None and at < last:
            reason = WENT_BACK
        elif reason is None and (step.held or self._held or not self._steps % LOOK_EVERY):
            # Those who generate and got nothing are followed step by step, prompts now and then.
            name, left = self._prompts.first_in_line()
            steps, self._looked = self._steps - self._looked, self._steps
            reason = self._dog.look(at, name, left, self._passing, step.held, steps)
            self._held, self._passing = bool(step.held), 0
        return reason

    # --- one step ------------------------------------------------------------------

    def _moment(self, running: list[Any], begun: list[Job]) -> Moment:
        decodes = len(running) - len(begun)
        context = sum([request.num_computed_tokens for request in running])
        context -= sum([job.context for job in begun])
        levers = self._levers
        moment = Moment(clock.now(), self.budget, decodes, decodes * levers.decode_tokens, context)
        moment.starts = self._seqs - len(running)
        moment.largest = self._largest
        moment.may_pass = levers.cap is not None
        if decodes:
            target = self._target(running, context // decodes)
            allowance = inf
            if target != inf:
                between = min(self._between, MOST_BETWEEN * target)
                allowance = max(self._least, self._margin.within(target) - between)
            if self._heeded(target):
                moment.most = self._ramp.most()
            self._plan = Plan(target, allowance, False)
            if self._ramp.done:
                moment.allowance = allowance
        else:
            self._plan = Plan(inf, inf, False)
        if levers.free_blocks is not None:
            moment.free_blocks = levers.free_blocks()
            moment.promised_blocks = sum([job.blocks for job in begun])
        return moment

    def _heeded(self, target: float) -> bool:
        """Whether steps with this target are held short: not beside patient decodes alone."""
        return target != inf or not self._promises.any_itl

    def _target(self, running: list[Any], context: int) -> float:
        """Return the tightest inter-token target among those who generate."""
        if not self._promises.any_itl:
            if not self._steps % RETARGET or self._implied == inf:
                self._implied = targets.implied(self.cost, self.budget) if self._ramp.done else inf
            return self._implied
        itl = self._promises.one_itl
        if itl is None:
            itl = min([self._prompts.itl(request.request_id) for request in running], default=inf)
        if itl == inf:
            return inf
        if not self._steps % RETARGET:
            self._reachable.clear()
        if itl not in self._reachable:
            self._least = targets.least(self.cost, context) if self._ramp.done else 0.0
            self._reachable[itl] = max(itl, self._least)
        return self._reachable[itl]

    def _oldest(self, begun: list[Job], now: float) -> Job | None:
        """Return whose turn it is, if one has waited too long and it is time."""
        late = self._prompts.late(begun)
        oldest = self._share.whose(late) if late else None
        turn = self._share.turn(oldest is not None and too_long(oldest, now))
        self.counts.turns += turn
        return oldest if turn else None

    def _move(
        self, scheduler: Any, found: Decision, begun: list[Job], blocked: list[Job], decodes: int
    ) -> None:
        plan = self._plan
        if plan is not None and self._ramp.done and plan.allowance != inf:
            plan.near = found.predicted >= NEAR * plan.allowance
        self.counts.decode_only += not found.tokens and (bool(found.order) or not blocked)
        self.counts.relegations = self._prompts.relegated
        caps = found.tokens
        for job in blocked:  # vLLM asks about them only while there is budget
            caps[job.name] = 1
        budget = decodes + sum(caps.values())
        held = self._levers.held()
        if held:
            budget = self.budget
        started = [job for job in found.order if job.started]
        if begun:
            _reorder(scheduler.running, [job.name for job in started])
        if self._levers.queue is not None and len(started) < len(found.order) + len(blocked):
            chosen = [job.name for job in found.order if job.name in caps and not job.started]
            self._levers.queue.put_first([*(job.name for job in blocked), *chosen])
        self._caps = caps
        if self._levers.cap is not None and (held or not self._by_budget_alone(started, caps)):
            self._asks = True
            put_cap(scheduler, self.asked)
        scheduler.max_num_scheduled_tokens = max(1, min(self.budget, budget))

    def _by_budget_alone(self, started: list[Job], caps: dict[str, int]) -> bool:
        """Whether vLLM, serving these in this order until the budget ends, does just that."""
        if self._levers.decode_tokens > 1 or not caps:
            return not started  # a decode may take less, and leave the rest to a prompt
        left = len(caps)
        for job in started:
            given = caps.get(job.name, 0)
            left -= given > 0
            if given < job.left:
                break
        return not left


def _reorder(running: list[Any], prefills: list[str]) -> None:
    """Put decodes first, then prompts by urgency: vLLM serves in this order, and takes
    the KV cache of the last one first."""
    tail = [request.request_id for request in running[-len(prefills) :]]
    if tail == prefills:
        return
    place = {name: index for index, name in enumerate(prefills)}
    running.sort(key=lambda request: place.get(request.request_id, -1))


def _shape(step: Step) -> StepShape:
    tokens, work = 0, 0.0
    for chunk in step.chunks:
        tokens += chunk.tokens
        work += chunk.tokens * (chunk.context + chunk.tokens / 2)
    return StepShape(tokens, len(step.chunks), work, step.decodes, step.decode_context)
