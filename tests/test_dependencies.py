"""Adding Chunkwise to a vLLM environment changes no installed version."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What an installed distribution asks for with these extras, here and now."""
    wanted = [Requirement(line) for line in metadata.requires(name) or []]
    return [
        need
        for need in wanted
        if need.marker is None
        or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""})
    ]


def closure(name: str) -> set[str]:
    """The names of all distributions that installing `name` brings."""
    seen: set[tuple[str, frozenset[str]]] = set()
    queue = [(canonicalize_name(name), frozenset[str]())]
    while queue:
        item = queue.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            needs = requirements(*item)
        except metadata.PackageNotFoundError:  # optional on another platform
            continue
        queue += [(canonicalize_name(need.name), frozenset(need.extras)) for need in needs]
    return {found for found, _ in seen}


def test_base_needs_pin_nothing_and_never_vllm() -> None:
    base = requirements("chunkwise", frozenset())
    assert base
    for need in base:
        assert str(need.specifier) == "", f"{need} pins a version"
        assert not need.name.startswith(("vllm", "torch"))


def test_no_extra_requires_vllm() -> None:
    lines = metadata.requires("chunkwise") or []
    assert not any(Requirement(line).name.startswith("vllm") for line in lines)


@pytest.mark.engine
def test_base_needs_only_what_vllm_brings() -> None:
    from chunkwise.engine import compat

    found = compat.installed()
    assert found
    brought = closure(found.distribution)
    base = {canonicalize_name(need.name) for need in requirements("chunkwise", frozenset())}
    assert base <= brought


@pytest.mark.engine
def test_pip_would_change_nothing_else(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
            *("--no-build-isolation", "--report", str(report), str(root)),
        ],
        check=True,
        capture_output=True,
    )
    planned = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
    assert planned == ["chunkwise"]
