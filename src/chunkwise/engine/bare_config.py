"""vLLM's whole configuration for a scheduler that has no model behind it.

A scheduler needs of a model only how long a context may be and how many blocks
of KV cache there are, so the model named to vLLM is a stand-in of one tiny
layer: any real model is scheduled alike, without its files. Invariant: vLLM
itself reads and checks every setting; nothing is decided here but what a GPU
has and this machine may not (async scheduling, the block size).
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from chunkwise.engine import compat
from chunkwise.errors import UserMistake
from chunkwise.settings import Settings

DEFAULT_BLOCK = 16
LONGEST = 2**22
# What of the settings concerns the scheduler; the rest prices steps or sizes the pool.
SCHEDULING = (
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "max_num_seqs",
    "max_num_active_seqs",
    "scheduling_policy",
    "enable_prefix_caching",
    "scheduler_reserve_full_isl",
    "watermark",
)
STAND_IN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 128,
    "max_position_embeddings": LONGEST,
    "torch_dtype": "bfloat16",
}


def bare_config(settings: Settings, max_model_len: int, blocks: int) -> Any:
    """Return a `VllmConfig` of these settings for a pool of `blocks` blocks."""
    if (settings.pipeline_parallel_size or 1) > 1 or (settings.data_parallel_size or 1) > 1:
        raise UserMistake(
            "Only one engine without pipeline stages is simulated: leave out "
            "pipeline_parallel_size and data_parallel_size (--replicas makes a fleet)."
        )
    chosen = {name: getattr(settings, name) for name in SCHEDULING}
    reduced = Settings(
        **{name: value for name, value in chosen.items() if value is not None},
        block_size=settings.block_size or DEFAULT_BLOCK,
        max_model_len=max_model_len,
        enforce_eager=True,
    )
    args = compat.engine_args(_stand_in(), reduced, skip_tokenizer_init=True)
    config = compat.checked_config(args, "server")
    # A CPU has no async scheduling; the simulated device is not this one.
    config.scheduler_config.async_scheduling = settings.async_scheduling is not False
    config.cache_config.num_gpu_blocks = blocks
    return config


@cache
def _stand_in() -> str:
    home = Path(tempfile.mkdtemp(prefix="chunkwise-stand-in-"))
    (home / "config.json").write_text(json.dumps(STAND_IN))
    import atexit
    import shutil

    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return str(home)
