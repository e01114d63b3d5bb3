"""The simulation of `chunkwise simulate`, in the child process that may load vLLM."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from chunkwise.settings import Settings
from chunkwise.sim import kept
from chunkwise.sim.fleet import Replica, merged, run_fleet
from chunkwise.sim.machine import calibrated, on_gpu
from chunkwise.sim.run import simulate
from chunkwise.sim.sources import Users
from chunkwise.sim.traffic import Traffic

TELL_SECONDS = 0.5
TELL_SHARE = 0.05


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Simulate what the spec names; report the machine and where the columns are."""
    from chunkwise.workload.readers import open_file
    from chunkwise.workload.text_workload import Reading

    source = Path(spec["source"])
    yield _progress("Reading the traffic", 0.0)
    traffic = Traffic.of(open_file(source, source.name, Reading()), spec["limit"])
    if spec["rate"] is not None:
        traffic = traffic.at_rate(spec["rate"], spec["seed"])
    elif spec["scale"] is not None:
        traffic = traffic.scaled(spec["scale"])
    users = None if spec["users"] is None else Users(spec["users"])
    yield _progress("Reading the costs", 0.02)
    asked = Settings.parse(spec["settings"])
    if spec["gpu"] is not None:
        machine, settings = on_gpu(spec["model"], spec["gpu"], asked)
    else:
        machine, settings = calibrated(spec["model"], Path(spec["calibration"]), asked)
    where = machine.cost.provenance
    yield {
        "event": "machine",
        "settings": settings.to_llm(),
        "kv_tokens": machine.kv_tokens,
        "source": where.source,
        "device": where.device,
        "notes": list(where.notes),
    }
    yield _progress("Starting vLLM's scheduler", 0.05)
    cls, seed = spec["scheduler_cls"], spec["seed"]
    if spec["replicas"] == 1:
        done = [0.0]

        def tell(share: float) -> None:
            done[0] = share

        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(simulate, traffic, settings, machine, users, cls, seed, tell)
            told = 0.0
            while wait([coming], timeout=TELL_SECONDS).not_done:
                if done[0] >= told + TELL_SHARE:
                    told = done[0]
                    yield _progress(f"Simulating: {told:.0%}", 0.05 + 0.95 * told)
            found = coming.result()
    else:
        fleet: list[Replica] = []
        for replica in run_fleet(
            traffic, settings, machine, spec["replicas"], spec["router"], users, cls, seed
        ):
            fleet.append(replica)
            share = len(fleet) / spec["replicas"]
            yield _progress(f"Replica {len(fleet):,}", 0.05 + 0.9 * share)
        found = merged(traffic, fleet)
    kept.save(found, Path(spec["save"]))
    yield {"event": "simulated"}


def _progress(text: str, done: float) -> dict[str, Any]:
    return {"event": "progress", "text": text, "done": done}
