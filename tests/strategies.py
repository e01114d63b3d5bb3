"""Hypothesis strategies that more than one room's tests draw from."""

from typing import Any

from hypothesis import strategies as st


@st.composite
def valid_values(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments that hold together whatever the model."""
    seqs = draw(st.integers(1, 1024))
    budget = draw(st.integers(seqs, 32768))
    length = draw(st.integers(16, 8192))
    sizes = draw(st.lists(st.integers(1, 512), min_size=1, max_size=5, unique=True))
    everything = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": budget,
        "max_num_scheduled_tokens": draw(st.integers(seqs, budget)),
        "max_num_active_seqs": draw(st.integers(1, seqs)),
        "max_model_len": length,
        "long_prefill_token_threshold": draw(st.integers(0, length)),
        "long_prefill_token_threshold_adaptive": draw(st.booleans()),
        "enable_chunked_prefill": True if budget < length else draw(st.booleans()),
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "enable_prefix_caching": draw(st.booleans()),
        "gpu_memory_utilization": draw(st.sampled_from([0.1, 0.5, 0.9])),
        "watermark": draw(st.sampled_from([0.0, 0.01, 0.1])),
        "block_size": draw(st.sampled_from([16, 32, 64, 128])),
        "kv_cache_dtype": draw(st.sampled_from(["auto", "bfloat16"])),
        "dtype": draw(st.sampled_from(["auto", "bfloat16", "float32"])),
        "enforce_eager": draw(st.booleans()),
        "optimization_level": draw(st.integers(0, 3)),
        "cudagraph_capture_sizes": tuple(sorted(sizes)),
    }
    # Where one of a related pair is left out, vLLM's default would have to fit the other.
    keep = draw(st.sets(st.sampled_from(sorted(everything)))) | {
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
    }
    return {name: value for name, value in everything.items() if name in keep}
