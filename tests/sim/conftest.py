"""A machine of round numbers."""

import pytest
from tests.sim.costs_for_tests import LinearCost

from chunkwise.sim.run import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine(LinearCost(), kv_tokens=50_000, max_model_len=8192)
