"""Fixtures for every room; engines are shared by `tests/engine/conftest.py`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# Deadlines measure the machine, which is shared and noisy; not our code.
settings.register_profile("chunkwise", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile("chunkwise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors, but those that vLLM's own modules raise are theirs."""
    theirs = pytest.mark.filterwarnings("ignore:::(?!chunkwise|tests)")
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(theirs)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def chunkwise() -> Run:
    """Run the command line as a user does: a process of its own."""

    def run(*args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "chunkwise", *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real small model."""
    from chunkwise.lab import models

    return models.smollm2()


@pytest.fixture(scope="session")
def timing_30m() -> Path:
    """A model with random weights, for what depends on shapes only."""
    from chunkwise.lab import models

    return models.timing_model("30m")
