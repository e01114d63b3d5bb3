"""The simple rules that people know, as schedulers: what pacing is compared with.

`chunkwise simulate … --scheduler-cls chunkwise.engine.rule_schedulers.HalvingScheduler`.
The target is `CHUNKWISE_ITL` (50 ms if there is none). Invariant: a rule says the
step's budget and nothing else; vLLM decides the step, and has its own budget back
when it has. Meant for the simulator: nothing here falls back.
"""

from typing import Any

from chunkwise.engine import clock, compat
from chunkwise.engine.orders import Orders
from chunkwise.engine.scheduler import layered
from chunkwise.pacing.baselines import ByLoad, HalveOrDouble, Rule

USUAL_ITL = 0.05  # seconds


def HalvingScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build one whose budget halves when a step was too long, and doubles when it was short."""
    built = layered(compat.stock_scheduler(vllm_config), RuleLayer)
    scheduler = built(*args, vllm_config=vllm_config, **kwargs)
    most = scheduler.max_num_scheduled_tokens
    scheduler.rule = HalveOrDouble(Orders.read().itl or USUAL_ITL, most=most)
    return scheduler


def ByLoadScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build one that gives prompts 64, 128 or 256 tokens a step, by how many generate."""
    built = layered(compat.stock_scheduler(vllm_config), RuleLayer)
    scheduler = built(*args, vllm_config=vllm_config, **kwargs)
    scheduler.rule = ByLoad(scheduler.max_num_running_reqs)
    return scheduler


class RuleLayer:
    """What is laid over vLLM's scheduler."""

    rule: Rule
    max_num_scheduled_tokens: int
    running: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = clock.StepClock()
        self._last = 0.0  # seconds of the last step that carried something

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide the next step within the rule's budget."""
        own = self.max_num_scheduled_tokens
        decodes = sum(
            request.num_computed_tokens >= request.num_tokens - 1 for request in self.running
        )
        budget = self.rule.budget(decodes, self._last)
        self.max_num_scheduled_tokens = max(1, min(own, max(budget, decodes)))
        try:
            output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.max_num_scheduled_tokens = own
        if output.num_scheduled_tokens:
            self._clock.scheduled(output, None)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Take in a step's result, and how long it took."""
        timed = self._clock.ended(scheduler_output, clock.now())
        if timed is not None:
            self._last = timed[0]
        return super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
