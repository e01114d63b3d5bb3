"""vLLM's own server with the plug-in: what is started, and what we add to it.

Everything is decided from plain words before anything is loaded. Then this
process *becomes* the server (`execve`): there is no parent to forward signals,
no pipe in front of the log and no exit code to translate, so port, routes, logs,
signals and exit code are vLLM's by construction, and what watches this process
watches the server.

Invariant: arguments go as a list, never through a shell; what a person gives to
vLLM is passed on as it is, and wins over the settings file; nothing that is
shown holds a key.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from chunkwise.engine import compat_server
from chunkwise.engine.orders import Orders
from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.settings import Settings, read_mapping
from chunkwise.slo import Slo, parse_duration

SCHEDULER = "chunkwise.PacedScheduler"
LOOPBACK = "127.0.0.1"
PREFIX = "CHUNKWISE"
MODES = {
    "off": "vLLM's own scheduler runs, without our layer",
    "observe": "the plug-in watches every step and changes nothing",
    "on": "the plug-in is asked to keep the targets: how much prefill each step carries, and whose",
}
REASONS = {
    "CHUNKWISE_ITL": "promised gap between two tokens of a request",
    "CHUNKWISE_TTFT": "promised time to the first token",
    "CHUNKWISE_CLASSES": "classes that a request may name, from your environment",
    "CHUNKWISE_DIR": "folder of its records, from your environment",
}


@dataclass(frozen=True)
class Setting:
    """A vLLM argument, as it is shown, and who asked for it."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Addition:
    """Something that plain `vllm serve MODEL` would not have."""

    what: str
    why: str


@dataclass(frozen=True)
class Launch:
    """A server that is ready to start. Usage: `become(launch("my-model", itl="50ms"))`."""

    command: tuple[str, ...]
    environment: Mapping[str, str]  # set on top of the environment that is there
    orders: Orders
    settings: tuple[Setting, ...]
    added: tuple[Addition, ...]
    plain: str  # the line for a shell


def launch(
    model: str,
    args: Sequence[str] = (),
    *,
    itl: str | None = None,
    ttft: str | None = None,
    observe: bool = False,
    settings: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Launch:
    """Work out what to start; every mistake that can be seen without vLLM is told here."""
    given = _given(model, args)
    ours = _environment(environment, itl, ttft, observe)
    chosen = Settings() if settings is None else Settings.from_yaml(settings)
    kept = chosen.model_copy(
        update={name: None for name in chosen.to_llm() if name.replace("_", "-") in given}
    )
    added = ["--scheduler-cls", SCHEDULER]
    why = [Addition(" ".join(added), "vLLM's own way to name a scheduler: the plug-in")]
    if not any(compat_server.may_mean(name, "host", "uds") for name in given):
        added += ["--host", LOOPBACK]
        why.append(
            Addition(f"--host {LOOPBACK}", "only this machine may ask; give --host to serve others")
        )
    why += [Addition(f"{name}={value}", _why(name, value)) for name, value in ours.items()]
    whole = [*added, *kept.to_args(), *args]
    return Launch(
        command=(*compat_server.program(model), *whole),
        environment=ours,
        orders=Orders.read({**environment, **ours}),
        settings=(*_from_file(kept, settings), *_from_line(args)),
        added=tuple(why),
        plain=" ".join(
            [
                *(f"{name}={shlex.quote(value)}" for name, value in ours.items()),
                shlex.join(["vllm", "serve", model, *compat_server.masked(whole)]),
            ]
        ),
    )


def become(ready: Launch) -> NoReturn:
    """Turn this process into the server."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(ready.command[0], ready.command, {**os.environ, **ready.environment})  # noqa: S606
    except OSError as error:
        raise EngineTrouble(f"Cannot run {ready.command[0]}: {error.strerror}.") from None


def _given(model: str, args: Sequence[str]) -> set[str]:
    """Return the names of what a person gives to vLLM; refuse what is ours to give."""
    if model.startswith("-"):
        raise UserMistake(f"`{model[:40]}` is no model: name it before vLLM's arguments.")
    if args and not args[0].startswith("-"):
        raise UserMistake(f"`{args[0][:40]}` is no vLLM argument: after `--` they begin with --.")
    given = {name for name, _ in compat_server.grouped(args)}
    if any(compat_server.may_mean(name, "model") for name in given):
        raise UserMistake("The model is named once, as MODEL: leave out --model.")
    if "--config" in args[:-1]:
        place = Path(args[args.index("--config") + 1])
        given |= {name.replace("_", "-").removeprefix("no-") for name in read_mapping(place)}
    if any(compat_server.may_mean(name, "scheduler-cls") for name in given):
        raise UserMistake(
            f"vLLM takes one scheduler, and `chunkwise serve` names {SCHEDULER}: leave out "
            f"--scheduler-cls, or start yours with `vllm serve`."
        )
    return given


def _environment(
    there: Mapping[str, str], itl: str | None, ttft: str | None, observe: bool
) -> dict[str, str]:
    """Return the variables that bring the orders to every process of the engine."""
    ours = {PREFIX: _mode(there.get(PREFIX, ""), observe)}
    for name, asked in (("itl", itl), ("ttft", ttft)):
        variable = f"{PREFIX}_{name.upper()}"
        text = (there.get(variable, "") if asked is None else asked).strip()
        if asked is not None or text:
            Slo(**{name: parse_duration(text)})  # refuses what is no target
            ours[variable] = text
    if classes := there.get("CHUNKWISE_CLASSES", "").strip():
        ours["CHUNKWISE_CLASSES"] = classes
        if not Orders.read(ours).classes:
            raise UserMistake(Orders.read(ours).remarks[-1])
    if folder := there.get("CHUNKWISE_DIR"):
        # An actor of Ray stands in another folder than we do.
        ours["CHUNKWISE_DIR"] = str(Path(folder).expanduser().absolute())
    prefixes = [part.strip() for part in there.get(compat_server.RAY_PREFIXES, "").split(",")]
    listed = dict.fromkeys([*filter(None, prefixes), PREFIX])
    ours[compat_server.RAY_PREFIXES] = ",".join(listed)
    return ours


def _mode(there: str, observe: bool) -> str:
    """Return the more careful of what the environment and the option say."""
    found = there.strip().lower() or "on"
    if found not in MODES:
        raise UserMistake(f"CHUNKWISE={there[:20]!r} is not off, observe or on: mend or unset it.")
    return "observe" if observe and found == "on" else found


def _why(name: str, value: str) -> str:
    if name == PREFIX:
        return MODES[value]
    return REASONS.get(name, "engines that Ray starts get the variables above")


def _from_file(kept: Settings, file: Path | None) -> list[Setting]:
    return [
        Setting(f"--{name.replace('_', '-')}", str(value), str(file))
        for name, value in kept.to_llm().items()
    ]


def _from_line(args: Sequence[str]) -> list[Setting]:
    found = []
    for _, words in compat_server.grouped(compat_server.masked(args)):
        name, equals, value = words[0].partition("=")
        values = [value] if equals else words[1:]
        found.append(Setting(name, " ".join(values) or "yes", "your arguments"))
    return found
