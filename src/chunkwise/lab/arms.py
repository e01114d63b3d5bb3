"""The arms of a comparison: what a person writes, and the vLLM arguments it means.

An arm is a real server with its own arguments, or one that already runs. What a
person wrote is checked before anything starts; what depends on the machine, the
model and the promise (how long `off` must make its steps, what `paced` keeps to,
which arguments this vLLM has) is filled in by `settled`. Invariant: nothing that
names an address, a model or a key can come in through an arm, so that all arms
serve the same model on loopback and the file of runs holds no secret.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.serve import PREFIX, SCHEDULER
from chunkwise.errors import UserMistake
from chunkwise.settings import Settings
from chunkwise.slo import Slo, parse_duration

FORMS = (
    "write default, off, static:2048, static:2048/512 (budget/threshold), best-static, paced, "
    "paced:50ms/1s (ITL/TTFT), a settings file (.yaml), NAME=--any --vllm-arguments, or "
    "NAME=http://127.0.0.1:8000"
)
OURS = {"model", "served-model-name", "host", "port", "uds", "api-key", "root-path"}
_NAME = re.compile(r"[\w][\w .:/+-]{0,39}")
_STATIC = re.compile(r"static:(\d{1,8})(?:/(\d{1,8}))?")
_PACED = re.compile(r"paced(?::(\w[\w.]*)(?:/(\w[\w.]*))?)?", re.ASCII)
_URL = re.compile(r"https?://[\w.:\[\]-]{1,200}(?:/[\w./-]{0,200})?")


@dataclass(frozen=True)
class Arm:
    """One way to serve. Usage: `settled(parse("static:2048/512"), machine)`."""

    name: str
    said: str  # as the person wrote it
    args: tuple[str, ...] = ()
    url: str | None = None  # a server that is not ours
    search: tuple[dict[str, Any], ...] = ()  # how best-static was found
    environment: Mapping[str, str] = field(default_factory=dict)  # of our plug-in in it

    def to_json(self) -> dict[str, Any]:
        """Return what the file of runs keeps of it."""
        found: dict[str, Any] = {"said": self.said, "settings": list(self.args)}
        if self.url is not None:
            found["url"] = self.url
        if self.search:
            found["search"] = list(self.search)
        if self.environment:
            found["environment"] = dict(self.environment)
        return found

    @classmethod
    def from_json(cls, name: str, found: Mapping[str, Any]) -> "Arm":
        """Read back what `to_json` wrote."""
        search = tuple(found.get("search", ()))
        # A file may be anybody's: it sets what our plug-in reads, and nothing else.
        environment = {
            key: str(value)
            for key, value in found.get("environment", {}).items()
            if key.startswith(PREFIX)
        }
        args = tuple(found["settings"])
        return cls(name, found["said"], args, found.get("url"), search, environment)


@dataclass(frozen=True)
class Machine:
    """What the installed vLLM says of itself and of the model here."""

    version: str
    device: str
    on_cpu: bool
    cores: int
    budget: int  # a server's default
    seqs: int
    context: int  # the longest sequence of the model
    accepted: frozenset[str]
    dummy: bool  # the model has no weights: random ones


def parse(said: str) -> Arm:
    """Read an arm as a person writes it; a wrong one is told at once."""
    if said in ("default", "off", "best-static"):
        return Arm(said, said)
    if found := _STATIC.fullmatch(said):
        return Arm(said, said, tuple(_static(int(found[1]), int(found[2] or 0)).to_args()))
    if found := _PACED.fullmatch(said):
        return _paced(Arm(said, said), _targets(found[1], found[2]))
    if said.endswith((".yaml", ".yml")) and "=" not in said:
        path = Path(said).expanduser()
        return Arm(path.stem[:40], said, tuple(compat.load_settings(path).to_args()))
    name, equals, rest = said.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise UserMistake(f"`{said[:80]}` is not an arm: {FORMS}.")
    if _URL.fullmatch(rest):
        return Arm(name, said, url=rest.rstrip("/"))
    return Arm(name, said, tuple(arguments(rest, f"the arm `{name}`")))


def arguments(text: str, where: str) -> list[str]:
    """Split vLLM arguments as a shell would, and refuse those that are ours to give."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserMistake(f"In {where}: {error}.") from None
    if not words or not words[0].startswith("--"):
        raise UserMistake(f"In {where}, `{text[:60]}` is no vLLM argument: {FORMS}.")
    for flag in _flags(words):
        if flag in OURS:
            raise UserMistake(f"In {where}: leave out --{flag}, which is the same for all arms.")
    return words


def refuse_same_names(arms: Sequence[Arm]) -> None:
    """Two arms of one name could not be told apart."""
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserMistake(f"Two arms are named `{twice}`: write one as OTHER-NAME=….")


def refuse_unknown(args: Sequence[str], machine: Machine) -> None:
    """Tell which arguments the installed vLLM does not have."""
    for flag in _flags(args):
        name = flag.split(".")[0].replace("-", "_")
        if name not in machine.accepted and name.removeprefix("no_") not in machine.accepted:
            instead = compat.REMOVED.get(name, "leave it out")
            raise UserMistake(f"vLLM {machine.version} has no argument --{flag}: {instead}.")


def settled(arm: Arm, machine: Machine, slo: Slo | None = None) -> Arm:
    """Fill in what only the machine, the model and the comparison's promise tell."""
    if arm.said == "off":
        # vLLM wants the longest prompt to fit one step when it may not be cut.
        budget = max(machine.context, machine.budget)
        off = Settings(enable_chunked_prefill=False, max_num_batched_tokens=budget)
        return replace(arm, args=tuple(off.to_args()))
    refuse_unknown(arm.args, machine)
    if arm.said == "paced" and slo is not None:
        return _paced(arm, slo)
    if found := _STATIC.fullmatch(arm.said):
        return static(int(found[1]), int(found[2] or 0), machine, arm.name)
    return arm


def static(budget: int, threshold: int, machine: Machine, name: str | None = None) -> Arm:
    """Return the arm of a fixed budget and threshold (0: none)."""
    said = f"static:{budget}/{threshold}" if threshold else f"static:{budget}"
    # vLLM refuses a budget below the number of requests that may run.
    seqs = budget if budget < machine.seqs else None
    return Arm(name or said, said, tuple(_static(budget, threshold, seqs).to_args()))


def _static(budget: int, threshold: int, seqs: int | None = None) -> Settings:
    values = {
        "max_num_batched_tokens": budget,
        "long_prefill_token_threshold": threshold or None,
        "max_num_seqs": seqs,
    }
    return Settings.parse(values, source=f"static:{budget}/{threshold}")


def _targets(itl: str | None, ttft: str | None) -> Slo:
    return Slo(parse_duration(ttft) if ttft else inf, parse_duration(itl) if itl else inf)


def _paced(arm: Arm, slo: Slo) -> Arm:
    """Return the arm with our plug-in, which keeps to these targets."""
    targets = {f"{PREFIX}_ITL": slo.itl, f"{PREFIX}_TTFT": slo.ttft}
    said = {name: f"{1000 * target:.3f}ms" for name, target in targets.items() if isfinite(target)}
    return replace(arm, args=("--scheduler-cls", SCHEDULER), environment={PREFIX: "on", **said})


def _flags(words: Sequence[str]) -> list[str]:
    """Return the names of the arguments; only the long form can be checked."""
    short = next((word for word in words if re.match(r"-[A-Za-z]", word)), None)
    if short is not None:
        raise UserMistake(f"`{short[:20]}` is a short form: write the argument's long name.")
    named = (word.removeprefix("--").split("=")[0] for word in words if word.startswith("--"))
    return [name.replace("_", "-") for name in named]
