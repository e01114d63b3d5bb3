"""Starting, telling apart and stopping servers, with a stand-in for vLLM's."""

import os
import signal
import socket
from pathlib import Path

import pytest

from chunkwise.errors import EngineTrouble
from chunkwise.lab import server
from chunkwise.lab.server import Given, Server

from .test_child import gone

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROGRAM", "server_for_tests")
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in path if part))
    monkeypatch.setenv("VLLM_API_KEY", "secret")


def test_from_start_to_stop() -> None:
    one = Server("one", "model", [])
    try:
        one.wait_healthy(20)
        assert one.answers
        given = Given("theirs", one.url)
        given.wait_healthy()
        assert given.model == one.model
    finally:
        one.stop()
    assert not one.answers
    assert gone([one._keeper.pid])
    assert not one.log.exists()
    with pytest.raises(EngineTrouble, match="No OpenAI server answers"):
        given.wait_healthy()


def test_a_free_port_is_none_that_systems_hand_out(monkeypatch: pytest.MonkeyPatch) -> None:
    port = server.free_port()
    assert port in server.PORTS
    with socket.create_server(("127.0.0.1", port)):
        monkeypatch.setattr(server, "PORTS", [port] * 100)
        with pytest.raises(EngineTrouble, match="port is free"):
            server.free_port()


def test_a_plug_in_heeds_its_arm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKWISE", "off")
    monkeypatch.setenv("CHUNKWISE_TTFT", "9s")
    stock = Server("stock", "model", [])
    paced = Server("paced", "model", [], {"CHUNKWISE": "on", "CHUNKWISE_ITL": "50ms"})
    try:
        inherited, own = (_environ(one) for one in (stock, paced))
    finally:
        stock.stop()
        paced.stop()
    assert inherited == {"CHUNKWISE": "off", "CHUNKWISE_TTFT": "9s"}
    folder = own.pop("CHUNKWISE_DIR")
    assert own == {"CHUNKWISE": "on", "CHUNKWISE_ITL": "50ms"}
    assert not Path(folder).exists()  # gone with its server


def _environ(one: Server) -> dict[str, str]:
    """What the plug-in would read in a server's process."""
    assert "secret" not in one._environment.values()
    return {name: value for name, value in one._environment.items() if name.startswith("CHUNKW")}


def test_a_port_that_somebody_else_took(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(server, "free_port", lambda: taken)
        monkeypatch.setattr(server, "PORT_TRIES", 2)
        one = Server("one", "model", [])
        try:
            with pytest.raises(EngineTrouble, match="did not start: The port is in use"):
                one.wait_healthy(60)
            assert one._tries == 2
        finally:
            one.stop()


def test_a_death_has_its_reason() -> None:
    one = Server("one", "model", ["--fault", "memory"])
    with pytest.raises(EngineTrouble, match=r"`one` did not start: The KV cache does not fit.*log"):
        one.wait_healthy(20)
    one.stop()


def test_one_that_stays_ill() -> None:
    one = Server("one", "model", ["--fault", "ill"])
    with pytest.raises(EngineTrouble, match=r"not healthy after 2\.00s"):
        one.wait_healthy(2)
    assert gone([one._keeper.pid])
    assert one.log.exists()


def test_a_killed_keeper_takes_its_server_along() -> None:
    one = Server("one", "model", [])
    one.wait_healthy(20)
    os.kill(one._keeper.pid, signal.SIGKILL)
    one._keeper.wait()
    assert not one.answers
    one.stop()
    assert server.models(one.url) == []
