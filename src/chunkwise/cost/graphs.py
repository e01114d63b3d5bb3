"""What a GPU step costs beside its kernels: the host, and what CUDA graphs do.

Kernel tables know nothing of these, so each is a term of its own that can be
read, changed or set to zero. Decode-only steps up to the capture limit replay
one FULL graph; any prefill token turns that into PIECEWISE graphs with eager
attention between them; steps over the limit have no graph. Tokens are padded up
to the next captured size. Invariant: no term falls when work is added.
"""

from bisect import bisect_left
from dataclasses import dataclass

DEFAULT_CAPTURE_LIMIT = 512
BLACKWELL_CAPTURE_LIMIT = 1024
DATA_CENTRE_BLACKWELL = ("b200", "b300", "gb200", "gb300")


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds and tokens beside the kernels.

    `host` and `host_per_request` fitted measured serving runs of the async
    engine (0.5 ms and none; the sync engine of vLLM 0.12: 1.5 ms and 0.04 ms).
    The terms per layer are orders of magnitude of launching from Python, not
    measurements: they show on small models and vanish behind large kernels.
    `prefill_factor` and `prefill_floor` are a per-GPU correction of steps with
    prefill over `prefill_over` tokens; nobody knows them before measuring.
    """

    host: float = 0.0005
    host_per_request: float = 0.0
    capture_limit: int = DEFAULT_CAPTURE_LIMIT  # 0 = enforce_eager
    piecewise_gap_per_layer: float = 5e-6  # idle GPU between the pieces
    eager_gap_per_layer: float = 10e-6
    piecewise_launch_per_layer: float = 40e-6  # the GPU waits if the host is slower than it
    eager_launch_per_layer: float = 80e-6
    prefill_factor: float = 1.0
    prefill_floor: float = 0.0
    prefill_over: int = 512


class Graphs:
    """Usage: `Graphs(StepTerms(), layers=36).seconds(kernels, tokens, decode_only=False)`."""

    __slots__ = ("_eager", "_piecewise", "_sizes", "limit")

    def __init__(self, terms: StepTerms, layers: int):
        self._sizes = capture_sizes(terms.capture_limit)
        self.limit = self._sizes[-1] if self._sizes else 0
        self._piecewise = (
            layers * terms.piecewise_gap_per_layer,
            layers * terms.piecewise_launch_per_layer,
        )
        self._eager = (layers * terms.eager_gap_per_layer, layers * terms.eager_launch_per_layer)

    def padded(self, tokens: int) -> int:
        """Return the tokens that are computed for a step of `tokens`."""
        return tokens if tokens > self.limit else self._sizes[bisect_left(self._sizes, tokens)]

    def seconds(self, kernels: float, tokens: int, decode_only: bool) -> float:
        """Return how long kernels take in the graph that a step of this kind runs in."""
        if tokens > self.limit:
            gap, launch = self._eager
        elif decode_only:
            return kernels
        else:
            gap, launch = self._piecewise
        return max(kernels + gap, launch)


def capture_sizes(limit: int) -> list[int]:
    """Return the sizes that vLLM captures up to a limit: 1, 2, 4, by 8 to 256, then by 16."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)]
    return [size for size in sizes if size <= limit]


def default_capture_limit(system: str) -> int:
    """Return vLLM's largest captured size on a GPU; `max_num_seqs` below half of it lowers it."""
    blackwell = system.startswith(DATA_CENTRE_BLACKWELL)
    return BLACKWELL_CAPTURE_LIMIT if blackwell else DEFAULT_CAPTURE_LIMIT
