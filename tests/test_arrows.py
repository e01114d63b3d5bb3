"""Arrows point one way, and only `engine` imports vLLM: read from the imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# A room may import rooms of a lower floor, and itself.
FLOORS = {
    "cli": 8,
    "report": 7,
    "planner": 6,
    "doctor": 6,
    "lab": 5,
    "sim": 5,
    "engine": 4,
    "pacing": 3,
    "cost": 2,
    "workload": 2,
    "reference": 1,
}
BASE = 1  # the single files beside the rooms, and readers/
# cost, pacing and engine live inside production servers: no extras, no workload.
LEAN = {"cost", "pacing", "engine"}
EXTRAS = {
    *("polars", "tokenizers", "jinja2", "datasketches", "optuna", "plotly", "scipy"),
    "aiconfigurator_core",
}
# The one file of a lean room that an extra is for.
ALLOWED_EXTRAS = {"cost/silicon.py": {"aiconfigurator_core"}}


def modules(root: Path) -> list[Path]:
    return sorted((root / "src" / "chunkwise").rglob("*.py"))


def room(parts: tuple[str, ...]) -> str:
    """The room of a dotted path below chunkwise, or "" for a file of the base."""
    return parts[0] if parts and parts[0] in FLOORS else ""


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out"
            assert node.module
            for alias in node.names:
                yield (*node.module.split("."), alias.name)


def violations(path: Path, relative: Path) -> Iterator[str]:
    here = room(relative.parts[:-1])
    front_door = relative.name in {"__init__.py", "__main__.py"} and not here
    for target in imports(path):
        if target[0] == "chunkwise" and not front_door:
            there = room(target[1:])
            if there != here and FLOORS.get(there, BASE) >= FLOORS.get(here, BASE) and there:
                yield f"{relative}: {here or 'base'} imports {there}"
            if there == "workload" and here in LEAN:
                yield f"{relative}: {here} imports workload"
        if target[0] == "vllm" and here != "engine":
            yield f"{relative}: only engine/ imports vLLM"
        allowed = ALLOWED_EXTRAS.get(relative.as_posix(), set())
        if here in LEAN and target[0] in EXTRAS - allowed:
            yield f"{relative}: {here} imports the extra {target[0]}"


def test_arrows_point_one_way(root: Path) -> None:
    home = root / "src" / "chunkwise"
    found = [line for path in modules(root) for line in violations(path, path.relative_to(home))]
    assert found == []


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("engine/bad.py", "from chunkwise.lab import child"),
        ("engine/bad.py", "import polars"),
        ("cost/bad.py", "import aiconfigurator_core"),
        ("cost/bad.py", "from chunkwise import workload"),
        ("settings.py", "from chunkwise.engine import compat"),
        ("lab/bad.py", "import vllm"),
        ("lab/bad.py", "from chunkwise.report.terminal import bar"),
    ],
)
def test_a_wrong_arrow_is_seen(tmp_path: Path, file: str, code: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    assert list(violations(path, Path(file)))


def test_files_stay_small(root: Path) -> None:
    long = [path for path in modules(root) if len(path.read_text().splitlines()) > 400]
    assert long == []
