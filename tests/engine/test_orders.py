from pathlib import Path

import pytest

from chunkwise.engine.orders import Orders


def test_unset_means_observe(tmp_path: Path) -> None:
    orders = Orders.read({"XDG_CACHE_HOME": str(tmp_path)})
    assert orders.mode == "observe"
    assert orders.folder == tmp_path / "chunkwise" / "captures"
    assert orders.remarks == ()


@pytest.mark.parametrize(
    ("text", "mode", "remarks"),
    [("off", "off", 0), (" OBSERVE ", "observe", 0), ("on", "on", 0), ("yes", "off", 1)],
)
def test_the_switch(text: str, mode: str, remarks: int) -> None:
    orders = Orders.read({"CHUNKWISE": text})
    assert orders.mode == mode
    assert len(orders.remarks) == remarks


def test_targets_and_classes() -> None:
    orders = Orders.read(
        {"CHUNKWISE_ITL": "50ms", "CHUNKWISE_TTFT": "1s", "CHUNKWISE_CLASSES": "chat, batch,chat"}
    )
    assert (orders.itl, orders.ttft) == (0.05, 1.0)
    assert orders.classes == ("chat", "batch")


@pytest.mark.parametrize(
    "wrong",
    [
        {"CHUNKWISE_ITL": "fast"},
        {"CHUNKWISE_TTFT": "0s"},
        {"CHUNKWISE_CLASSES": 'a"b'},
        {"CHUNKWISE_CLASSES": ",".join(f"c{n}" for n in range(17))},
    ],
)
def test_what_is_not_understood_is_left_out(wrong: dict[str, str]) -> None:
    orders = Orders.read(wrong)
    assert (orders.itl, orders.ttft, orders.classes) == (None, None, ())
    assert len(orders.remarks) == 1


def test_classes_with_targets_of_their_own() -> None:
    orders = Orders.read(
        {
            "CHUNKWISE_ITL": "50ms",
            "CHUNKWISE_CLASSES": "chat:ttft=1s:itl=30ms, other ,batch:ttft=none:itl=none",
        }
    )
    assert orders.remarks == ()
    assert orders.classes == ("chat", "other", "batch")
    assert orders.targets == (("chat", 1.0, 0.03), ("other", None, 0.05), ("batch", None, None))
    promises = orders.promises
    assert promises.any_itl
    assert promises.one_itl is None
    assert Orders.read({"CHUNKWISE_ITL": "50ms"}).promises.one_itl == 0.05
    assert not Orders.read({}).promises.any_itl


@pytest.mark.parametrize("wrong", ["chat:itl", "chat:fast=1s", "chat:itl=", ":itl=1s"])
def test_a_class_that_is_not_understood(wrong: str) -> None:
    orders = Orders.read({"CHUNKWISE_CLASSES": wrong})
    assert orders.classes == ()
    assert len(orders.remarks) == 1


def test_targets_are_clamped() -> None:
    orders = Orders.read({"CHUNKWISE_ITL": "1us", "CHUNKWISE_TTFT": "40h"})
    assert (orders.itl, orders.ttft) == (0.001, 3600.0)
    assert len(orders.remarks) == 2
