"""Costs and jobs for the tests of pacing."""

import random
from math import inf

from hypothesis import strategies as st

from chunkwise.cost.fitted import Coefficients, FittedCost, Largest
from chunkwise.cost.step import ErrorQuantiles, Provenance
from chunkwise.pacing.job import Job

WHERE = Provenance("calibration", "model", "device")
NO_ERROR = ErrorQuantiles(0, 0.0, 0.0, 0.0, 0.0)


def cost_of(*terms: float) -> FittedCost:
    """A cost with these seven terms."""
    return FittedCost(Coefficients(*terms), WHERE, NO_ERROR, Largest(2**31, 2**20, 1e18, 2**20))


GPU = cost_of(6e-3, 2e-3, 2.5e-5, 5e-5, 4e-9, 4e-5, 1.2e-8)

costs = st.builds(
    cost_of,
    st.floats(1e-4, 2e-2),
    st.floats(0, 5e-3),
    st.floats(1e-6, 1e-3),
    st.floats(0, 1e-3),
    st.floats(0, 1e-7),
    st.floats(0, 1e-3),
    st.floats(0, 1e-6),
)


@st.composite
def jobs(draw: st.DrawFn, least: int = 0, most: int = 40) -> list[Job]:
    """Jobs of every kind, at the moment 100. From one number: drawing each figure is slow."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    found = []
    for number in range(draw(st.integers(least, most))):
        added = rng.uniform(0, 100)
        job = Job(
            f"r{number}",
            number,
            left=int(10 ** rng.uniform(0, 4.5)),
            context=rng.choice([0, rng.randint(0, 30_000)]),
            deadline=rng.choice([inf, added + rng.uniform(0.1, 5), added + rng.uniform(0, 200)]),
            added=added,
            blocks=rng.randint(0, 2000),
            priority=rng.choice([0, 0, 0, 1, -3]),
            started=rng.random() < 0.5,
        )
        job.resumed = rng.random() < 0.1
        found.append(job)
    return found
