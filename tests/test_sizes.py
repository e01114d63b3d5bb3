import pytest

from chunkwise.errors import UserMistake
from chunkwise.sizes import parse_bytes, say_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 * 2**30), ("24 GB", 24 * 10**9), ("1.5gib", 3 * 2**29), ("512", 512)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1TiB?", "1e9", "9" * 50, "nan"])
def test_what_is_no_size_is_a_sentence(text: str) -> None:
    with pytest.raises(UserMistake, match="is not a size"):
        parse_bytes(text)


def test_sizes_are_said() -> None:
    assert [say_bytes(n) for n in (5, 2048, 3 * 2**19, 3 * 2**29)] == [
        "5 B",
        "2.0 KiB",
        "1.5 MiB",
        "1.5 GiB",
    ]
