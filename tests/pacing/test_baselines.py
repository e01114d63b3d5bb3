"""The simple rules that pacing is compared with."""

from chunkwise.pacing.baselines import ByLoad, HalveOrDouble


def test_half_when_too_long_and_twice_when_short() -> None:
    rule = HalveOrDouble(0.05, most=2048)
    assert rule.budget(8, 0.08) == 1024
    assert rule.budget(8, 0.04) == 1024
    assert rule.budget(8, 0.01) == 2048
    for _ in range(20):
        assert rule.budget(8, 0.08) >= 64


def test_fewer_tokens_the_more_generate() -> None:
    load = ByLoad(100)
    assert [load.budget(n, 0.0) - n for n in (10, 30, 60)] == [256, 128, 64]
