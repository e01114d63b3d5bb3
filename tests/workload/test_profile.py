import re
from pathlib import Path

import polars as pl
import pytest

from chunkwise.errors import UserMistake
from chunkwise.workload.analysis import analyze
from chunkwise.workload.profile import Profile, profile_of
from chunkwise.workload.workload import Workload


def from_readme(traces: Path) -> list[tuple[str, int, list[int], int, int | None]]:
    """File, rows, prompt p50 / p95 / max, mean output, share of blocks seen, as published."""
    rows = []
    for line in (traces / "README.md").read_text().splitlines():
        if match := re.match(r"\| `(.*?)` \| ([\d,]+) \| (.*?) \| ([\d,/ ]+) \| (\d+) \|", line):
            name, count, what, lengths, output = match.groups()
            seen = re.search(r"(\d+)% of blocks", what)
            numbers = [int(n.replace(",", "")) for n in lengths.split("/")]
            share = int(seen.group(1)) if seen else None
            rows.append((name, int(count.replace(",", "")), numbers, int(output), share))
    return rows


def test_the_traces_are_as_published(traces: Path) -> None:
    published = from_readme(traces)
    assert len(published) == 4
    found = {item.name: item for item in analyze([str(traces)]).profile.datasets}
    for name, rows, (median, p95, longest), output, seen in published:
        item = found[name]
        assert item.requests == rows
        assert item.prompt.quantile(0.5) == median
        assert item.prompt.quantile(0.95) == p95
        assert item.prompt.largest == longest
        assert round(item.output.mean) == output
        if seen is not None:
            assert round(item.prefix.seen_blocks_share * 100) == seen
            assert item.prefix.sampled == item.prefix.curve_sampled == 1


def profile(*lengths: list[int]) -> Profile:
    frames = [pl.DataFrame({"prompt_tokens": part}) for part in lengths]
    made = (profile_of(Workload.of(frame, f"d{i}")) for i, frame in enumerate(frames))
    return Profile(datasets=tuple(made))


def test_figures_over_datasets() -> None:
    found = profile([10, 3000], [20], [9000, 40_000])
    whole = found.overall()
    assert whole.requests == 5
    assert found.mean_of_longest == (3000 + 20 + 40_000) / 3
    assert found.datasets_above(2048) == 2 / 3
    assert whole.prompt.above[8192] == (2, 49_000)
    assert [item.verdict().name for item in found.datasets] == ["cut", "uncut", "cut"]


def test_a_saved_profile_is_read_back_and_merges(data: Path, tmp_path: Path) -> None:
    one = analyze([str(data / "mooncake_120.jsonl")]).profile
    two = analyze([str(data / "azure_conv_200.csv")]).profile
    for name, item in (("one", one), ("two", two)):
        item.save(tmp_path / f"{name}.json")
    assert Profile.load(tmp_path / "one.json") == one
    merged = analyze([str(tmp_path)]).profile
    assert merged == one.merged(two)
    assert (
        merged.overall()
        == analyze(
            [str(data / "mooncake_120.jsonl"), str(data / "azure_conv_200.csv")]
        ).profile.overall()
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "chunkwise.profile/1"}',
        '{"schema": "chunkwise.profile/1", "datasets": []}',
        '{"schema": "chunkwise.profile/1", "datasets": [{"name": 3}], "code": "x"}',
        '{"schema": "chunkwise.profile/1", "datasets": ' + "[" * 50_000,
    ],
)
def test_a_broken_profile_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserMistake, match="not a profile that this version reads"):
        analyze([str(tmp_path / "p.json")])


def test_a_folder_leaves_out_what_it_cannot_read(data: Path, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"prompt": "hello"}\n')
    (tmp_path / "bad.jsonl").write_text('{"other": 1}\n')
    (tmp_path / "empty.csv").touch()
    result = analyze([str(tmp_path)], estimate=True)
    assert [item.name for item in result.profile.datasets] == ["good.jsonl"]
    assert [name for name, _ in result.skipped] == ["bad.jsonl", "empty.csv"]
    (tmp_path / "good.jsonl").unlink()
    with pytest.raises(UserMistake, match="None of the 2 files"):
        analyze([str(tmp_path)], estimate=True)


def test_many_classes_are_bounded() -> None:
    names = [f"c{n}" for n in range(500)]
    frame = pl.DataFrame({"prompt_tokens": [1] * 500, "request_class": names})
    found = profile_of(Workload.of(frame, "x"))
    assert len(found.classes) <= 65
    assert sum(found.classes.values()) == 500
