"""What an engine's dying words mean, and what to do about it.

One table from a pattern in vLLM's (or torch's, or the hub's) error text to a
sentence for a person. The first match wins; no match means that we do not know.
"""

import re

_MEANINGS: tuple[tuple[str, str], ...] = (
    (
        r"No available memory for the cache blocks|"
        r"To serve at least one request with the model's max seq len",
        "The KV cache does not fit beside the model: lower max_model_len or the budget, or "
        "raise gpu_memory_utilization (kv_cache_memory_bytes on a CPU).",
    ),
    (
        r"out of memory|can't allocate memory|Cannot allocate memory|MemoryError|bad_alloc",
        "The model needs more memory than there is: take a smaller model, a smaller dtype, or "
        "more tensor parallelism.",
    ),
    (
        r"is not a local folder and is not a valid model identifier|Repository Not Found|"
        r"Invalid repository ID or local directory|RepositoryNotFoundError|HFValidationError",
        "There is no such model: give a directory with a config.json, or a Hugging Face name.",
    ),
    (
        r"LocalEntryNotFoundError|couldn't connect to|Max retries exceeded|ConnectError|"
        r"OfflineModeIsEnabled|outgoing traffic has been disabled|Cannot reach",
        "The model is neither in the local cache nor reachable from here: give the path of a "
        "local copy.",
    ),
    (
        r"Model architectures? .* (?:is|are) not supported",
        "This vLLM does not support the model's architecture.",
    ),
    (
        r"Cannot find any model weights|No (?:model )?weights? (?:files? )?found",
        "The model's directory holds no weights: point to a complete copy.",
    ),
    (
        r"[Aa]ddress already in use",
        "The port is in use: stop the other server or choose another port.",
    ),
)


def explain(text: str) -> str | None:
    """Return a sentence for a known failure. Usage: `explain(log_tail) or "unknown"`."""
    for pattern, sentence in _MEANINGS:
        if re.search(pattern, text):
            return sentence
    return None
