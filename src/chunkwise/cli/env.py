"""`chunkwise env`: which vLLM is here, what it defaults to, what it can do."""

from typing import Any

import typer


def env(
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show the installed vLLM, its defaults on this machine and why, and its capabilities.

    Example: `chunkwise env --json`
    """
    from chunkwise.engine import compat
    from chunkwise.lab.child import Child
    from chunkwise.report.terminal import print_json, print_lines, progress

    found = compat.installed()
    if found is None:
        sentence = f"vLLM is not installed here: {compat.HOW_TO_INSTALL}."
        if as_json:
            print_json("env", {"vllm": None, "message": sentence})
        else:
            print_lines([sentence])
        return
    with progress() as say, Child("chunkwise.lab.environment:run", {}, keep_log=False) as child:
        say(f"Asking vLLM {found.version}", 0.1)
        facts = child.result()
    vllm = {"version": found.version, "distribution": found.distribution}
    if as_json:
        print_json("env", {"vllm": vllm, **facts})
    else:
        _show(vllm, facts, compat.REMOVED)


def _show(vllm: dict[str, str], facts: dict[str, Any], removed: dict[str, str]) -> None:
    from chunkwise.report.terminal import print_lines, print_table

    print_lines([f"vLLM {vllm['version']} ({vllm['distribution']}) on {facts['device']}", ""])
    print_table(
        "What vLLM takes where you say nothing",
        ["used as", "max_num_batched_tokens", "max_num_seqs", "because of"],
        text={0, 3},
        rows=[
            [item["usage"], f"{item['budget']:,}", f"{item['seqs']:,}", item["reason"]]
            for item in facts["defaults"]
        ],
    )
    print_lines(
        [
            "vLLM picks these by the device's kind and memory and by how it is used; they change",
            "between versions, so write down what you depend on.",
            "",
        ]
    )
    print_table(
        "What this vLLM can do",
        ["capability", "here", "for"],
        text={0, 1, 2},
        rows=[
            [item["name"], "yes" if item["present"] else "no", item["purpose"]]
            for item in facts["capabilities"]
        ],
    )
    print_table(
        "Arguments it no longer has",
        ["argument", "instead"],
        text={0, 1},
        rows=[[name, removed[name]] for name in facts["removed"]],
    )
