"""A profile: everything that is kept of a workload, small enough for a file.

Profiles merge. Counts, sums, maxima, shares and histograms are exact after a
merge; quantiles are exact too, or within the stated rank error where a sketch
was needed; prefix reuse becomes a lower bound, because what one file shares
with another is not known. Invariant: `Profile.load` accepts only what
`Profile.save` can have written, within a bound on size.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chunkwise import __version__
from chunkwise.errors import UserMistake
from chunkwise.verdict import Verdict, decide
from chunkwise.workload.arrivals import ArrivalCollector, ArrivalSummary
from chunkwise.workload.lengths import Count, LengthCollector, LengthSummary
from chunkwise.workload.prefix import PrefixCollector, PrefixSummary
from chunkwise.workload.workload import OUTPUT_KINDS, Workload

SCHEMA: Literal["chunkwise.profile/1"] = "chunkwise.profile/1"
LARGEST_FILE = 128 * 2**20
LONG_CHARACTERS = 8_192
MOST_CLASSES = 64

Name = Annotated[str, Field(max_length=4_096)]


class DatasetProfile(BaseModel):
    """One dataset, or all of them together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    layout: Name
    estimated: bool
    prompt: LengthSummary
    output: LengthSummary
    output_kinds: dict[Literal["known", "limited", "estimated"], Count]
    longest_characters: Count | None  # None: lengths came without text
    over_long_characters: Count = 0
    classes: dict[Annotated[str, Field(max_length=64)], Count]
    prefix: PrefixSummary | None = None
    arrivals: ArrivalSummary | None = None
    notes: tuple[Name, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return self.prompt.count

    def verdict(self) -> Verdict:
        """Return the first verdict on chunked prefill for these lengths."""
        prompt = self.prompt
        return decide(
            longest=prompt.largest,
            p95=prompt.quantile(0.95),
            median=prompt.quantile(0.5),
            share_above=prompt.share_above,
            estimated=self.estimated,
        )


class Profile(BaseModel):
    """Datasets and what they come to together. Usage: `Profile.load(path).merged(other)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["chunkwise.profile/1"] = Field(default=SCHEMA, alias="schema")
    chunkwise: Name = __version__
    datasets: Annotated[tuple[DatasetProfile, ...], Field(min_length=1)]

    def overall(self) -> DatasetProfile:
        """Return all datasets as one."""
        if len(self.datasets) == 1:
            return self.datasets[0]
        prompt, output = LengthCollector(), LengthCollector()
        classes: dict[str, int] = {}
        kinds: dict[Literal["known", "limited", "estimated"], int] = {}
        prefix: PrefixSummary | None = None
        arrivals: ArrivalSummary | None = None
        for item in self.datasets:
            prompt.absorb(item.prompt)
            output.absorb(item.output)
            for kind, count in item.output_kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
            _add_classes(classes, item.classes)
            if item.prefix is not None:
                prefix = item.prefix if prefix is None else prefix.merged(item.prefix)
            if item.arrivals is not None:
                arrivals = item.arrivals if arrivals is None else arrivals.merged(item.arrivals)
        layouts = {item.layout for item in self.datasets}
        characters = [d.longest_characters for d in self.datasets if d.longest_characters]
        return DatasetProfile(
            name="all",
            layout=layouts.pop() if len(layouts) == 1 else f"{len(layouts)} layouts",
            estimated=any(item.estimated for item in self.datasets),
            prompt=prompt.summary(),
            output=output.summary(),
            output_kinds=kinds,
            longest_characters=max(characters, default=None),
            over_long_characters=sum(item.over_long_characters for item in self.datasets),
            classes=classes,
            prefix=prefix,
            arrivals=arrivals,
        )

    @property
    def mean_of_longest(self) -> float:
        """The mean of the datasets' longest prompts, in tokens."""
        return sum(item.prompt.largest for item in self.datasets) / len(self.datasets)

    def datasets_above(self, length: int) -> float:
        """Return the share of datasets with a prompt over `length` tokens."""
        return sum(d.prompt.largest > length for d in self.datasets) / len(self.datasets)

    def merged(self, *others: "Profile") -> "Profile":
        """Return the profile of all their datasets."""
        profiles = (self, *others)
        return Profile(datasets=tuple(item for one in profiles for item in one.datasets))

    def save(self, path: Path) -> None:
        """Write the profile to a file."""
        content = self.model_dump(mode="json", by_alias=True)
        try:
            path.write_text(json.dumps(content) + "\n")
        except OSError as error:
            raise UserMistake(f"Cannot write {path}: {error.strerror or error}.") from None

    @classmethod
    def load(cls, path: Path) -> "Profile":
        """Read a saved profile."""
        if path.stat().st_size > LARGEST_FILE:
            raise UserMistake(f"{path} is over {LARGEST_FILE // 2**20} MiB: not a profile.")
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:100]
            raise UserMistake(
                f"{path} is not a profile that this version reads ({where}: {first['msg'][:200]}): "
                f"make it again with `chunkwise analyze … --save`."
            ) from None


def is_profile(path: Path) -> bool:
    """Whether a file says that it is a saved profile."""
    try:
        with path.open("rb") as file:
            return SCHEMA.encode() in file.read(64)
    except OSError:
        return False


def profile_of(workload: Workload, tell: Callable[[int], None] | None = None) -> DatasetProfile:
    """Read a workload once and describe it; `tell` hears the number of rows so far."""
    has = set(workload.columns)
    prompt, output = LengthCollector(), LengthCollector()
    arrivals = ArrivalCollector() if "arrival_s" in has else None
    prefix = PrefixCollector(workload.block_size) if "prefix_blocks" in has else None
    kinds: dict[str, int] = dict.fromkeys(OUTPUT_KINDS, 0)
    classes: dict[str, int] = {}
    longest = over = rows = 0
    try:
        for batch in workload.batches():
            rows += len(batch)
            tokens = batch["prompt_tokens"].to_numpy()
            prompt.add(tokens)
            if "output_tokens" in has:
                output.add(batch["output_tokens"].drop_nulls().to_numpy())
                _add(kinds, _kinds(batch))
            if arrivals is not None:
                arrivals.add(batch["arrival_s"].to_numpy())
            if "prompt_chars" in has:
                characters = batch["prompt_chars"].to_numpy()
                longest = max(longest, int(characters.max(initial=0)))
                over += int((characters > LONG_CHARACTERS).sum())
            if "request_class" in has:
                counted = batch["request_class"].fill_null("").value_counts().rows()
                _add_classes(classes, {str(name)[:64]: count for name, count in counted})
            if prefix is not None:
                blocks = batch["prefix_blocks"]
                ids = blocks.explode(empty_as_null=False, keep_nulls=False)
                if ids.null_count():
                    raise UserMistake("A list of prefix blocks has an empty place in it.")
                counts = blocks.list.len().fill_null(0).to_numpy().astype(np.int64)
                prefix.add(ids.to_numpy().view(np.uint64), counts, tokens)
            if tell is not None:
                tell(rows)
    except UserMistake as error:
        # Sentences about single rows are made where the file's name is not known.
        text = str(error)
        named = text if workload.name in text else f"{workload.name}: {text}"
        raise UserMistake(named) from None
    if not rows:
        raise UserMistake(f"{workload.name} has no rows.")
    return DatasetProfile(
        name=workload.name[:4_096],
        layout=workload.layout[:4_096],
        estimated=workload.estimated,
        prompt=prompt.summary(),
        output=output.summary(),
        output_kinds={kind: count for kind, count in kinds.items() if count},
        longest_characters=longest if "prompt_chars" in has else None,
        over_long_characters=over,
        classes=classes,
        prefix=None if prefix is None else prefix.summary(),
        arrivals=None if arrivals is None else arrivals.summary(),
        notes=workload.notes,
    )


def _kinds(batch: pl.DataFrame) -> list[tuple[str, int]]:
    if "output_kind" not in batch.columns:
        return [("known", batch["output_tokens"].count())]
    return batch["output_kind"].drop_nulls().value_counts().rows()


def _add(counts: dict[str, int], rows: Sequence[tuple[str, int]]) -> None:
    for name, count in rows:
        counts[name] = counts.get(name, 0) + count


def _add_classes(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        # Bounded: a column of free text is not a column of classes.
        known = name in counts or len(counts) < MOST_CLASSES
        counts[name if known else "other"] = counts.get(name if known else "other", 0) + count
