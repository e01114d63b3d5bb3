"""vLLM's waiting queue with a front: whoever is named stands first for one step.

Stock queues let nobody pass: a deque for first come first served, a heap for
priorities. This one keeps vLLM's own order underneath and lays the chosen ones
over it, so that taking them back is forgetting a list. Invariant: the methods
are those of vLLM's `RequestQueue`; every request is in it exactly once; finding,
choosing and removing one costs the same with ten waiting as with ten thousand.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

SLACK = 64  # stale places in the heap that are not worth tidying


class PacedQueue:
    """Usage: `queue.put_first(["r7", "r3"])`, one step, `queue.put_back()`."""

    def __init__(self, by_priority: bool = False):
        self._there: OrderedDict[str, Any] = OrderedDict()
        self._by_priority = by_priority
        self._heap: list[Any] = []  # requests, by vLLM's own comparison; stale ones are skipped
        self._front: list[str] = []  # the next one last

    def put_first(self, names: Iterable[str]) -> None:
        """Let these stand before all others, in this order."""
        self._front = [*names][::-1]

    def put_back(self) -> None:
        """Go back to vLLM's own order."""
        self._front = []

    def first(self) -> Any:
        """Return the first request in vLLM's own order; None if there is none."""
        if not self._by_priority:
            return next(iter(self._there.values()), None)
        while self._heap and self._heap[0].request_id not in self._there:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def __contains__(self, name: object) -> bool:
        return name in self._there or getattr(name, "request_id", None) in self._there

    # --- what vLLM calls ---------------------------------------------------------

    def add_request(self, request: Any) -> None:
        """Add a request behind the others, or where its priority says."""
        self._there[request.request_id] = request
        if self._by_priority:
            if len(self._heap) > 2 * len(self._there) + SLACK:
                self._heap = [*self._there.values()]
                heapify(self._heap)
            else:
                heappush(self._heap, request)

    def prepend_request(self, request: Any) -> None:
        """Add a request before the others, or where its priority says."""
        self.add_request(request)
        if not self._by_priority:
            self._there.move_to_end(request.request_id, last=False)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Prepend each of them in turn, so that the last stands first."""
        for request in list(requests):
            self.prepend_request(request)

    def peek_request(self) -> Any:
        """Return the next request."""
        while self._front:
            if (found := self._there.get(self._front[-1])) is not None:
                return found
            self._front.pop()
        if (found := self.first()) is None:
            raise IndexError("peek from an empty queue")
        return found

    def pop_request(self) -> Any:
        """Take the next request out."""
        request = self.peek_request()
        del self._there[request.request_id]
        return request

    def remove_request(self, request: Any) -> None:
        """Take this request out."""
        self._there.pop(request.request_id, None)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Take these requests out."""
        for request in list(requests):
            self._there.pop(request.request_id, None)

    def __bool__(self) -> bool:
        return bool(self._there)

    def __len__(self) -> int:
        return len(self._there)

    def __iter__(self) -> Iterator[Any]:
        found = list(self._there.values())
        return iter(sorted(found) if self._by_priority else found)
