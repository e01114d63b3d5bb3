"""A prompt that is not computed yet, as the decision sees it: plain numbers.

Invariant: nothing here knows an engine; whoever owns the queue keeps `left` and
`context` true, and the decision only reads them.
"""

from math import inf


class Job:
    """Usage: `Job("r1", 0, left=900, deadline=now + 1.0)`."""

    __slots__ = (
        "added",
        "aside",
        "blocks",
        "context",
        "deadline",
        "gone",
        "left",
        "lost",
        "moved",
        "name",
        "number",
        "priced",
        "priority",
        "request",
        "resumed",
        "started",
        "work",
    )

    def __init__(
        self,
        name: str,
        number: int,
        left: int,
        context: int = 0,
        deadline: float = inf,
        added: float = 0.0,
        blocks: int = 0,
        priority: int = 0,
        started: bool = False,
        request: object = None,
    ):
        self.name = name
        self.number = number  # in order of arrival
        self.left = left  # tokens to compute that no cache holds
        self.context = context  # tokens before them
        self.deadline = deadline  # of the first token; infinity where nothing was promised
        self.added = added
        self.moved = added  # when it last got a token
        self.blocks = blocks  # of the KV cache, still to be taken for the whole prompt
        self.priority = priority  # lower goes first
        self.started = started  # holds blocks already
        self.gone = False  # ended, or another job stands for its request
        self.resumed = False  # was generating, and lost its blocks
        self.aside = False  # cannot make its deadline any more
        self.lost = False  # ... nor come much sooner than never
        self.work = 0.0  # predicted seconds, by `relegation.price`
        self.priced = -1  # tokens left when it was priced
        self.request = request  # the engine's own, which nobody here looks into

    @property
    def patient(self) -> bool:
        """Whether nothing was promised about its first token."""
        return self.deadline == inf

    def __repr__(self) -> str:
        return f"Job({self.name}, left={self.left}, deadline={self.deadline})"
