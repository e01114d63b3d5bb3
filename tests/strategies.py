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


@st.composite
def broken_values(draw: st.DrawFn) -> dict[str, Any]:
    """Valid arguments with one rule broken, by any amount."""
    values = draw(valid_values())
    budget, seqs = values["max_num_batched_tokens"], values["max_num_seqs"]
    length = values["max_model_len"]
    more = draw(st.integers(1, 10**6))
    change: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"max_num_seqs": budget + more},
                {"max_num_scheduled_tokens": budget + more},
                {"max_num_active_seqs": seqs + more},
                {"long_prefill_token_threshold": length + more},
                {"enable_chunked_prefill": False, "max_model_len": budget + more},
                {"max_num_batched_tokens": -more},
                {"max_model_len": 0},
                {"gpu_memory_utilization": 1 + more / 10},
                {"watermark": -more / 10},
                {"optimization_level": 3 + more},
                {"block_size": str(more)},
                {"cudagraph_capture_sizes": (8, -more)},
                {"dtype": "float8"},
                {"scheduling_policy": ""},
                {f"flag_{more}": True},
                {"trust_remote_code": True},
                {"scheduler_cls": "a.B"},
            ]
        )
    )
    return {**values, **change}
