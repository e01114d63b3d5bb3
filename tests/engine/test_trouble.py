import pytest

from chunkwise.engine.trouble import explain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing", "KV cache"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "more memory"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to", "more memory"),
        ("OSError: x/y is not a local folder and is not a valid model identifier", "no such model"),
        ("OSError: We couldn't connect to 'https://...' to load the files", "local copy"),
        ("RuntimeError: Cannot find any model weights with `m`", "no weights"),
        ("OSError: [Errno 98] Address already in use", "port"),
    ],
)
def test_known_failures_become_sentences(text: str, words: str) -> None:
    sentence = explain(f"noise\n{text}\nmore noise")
    assert sentence
    assert words in sentence


def test_the_unknown_stays_unknown() -> None:
    assert explain("Traceback (most recent call last): KeyError: 'x'") is None
