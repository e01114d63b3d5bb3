"""vLLM's own scheduler with no model behind it, stepped by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BLOCK = 16


def configuration(model: Path, **scheduler: Any) -> Any:
    """A whole vLLM configuration for a scheduler on its own."""
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig

    length = 8192
    given = {"max_num_seqs": 32, "max_num_batched_tokens": 2048, **scheduler}
    asynchronous = given.pop("async_scheduling", False)
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model),
            tokenizer=str(model),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            seed=0,
            max_model_len=length,
        ),
        scheduler_config=SchedulerConfig(
            max_model_len=length, is_encoder_decoder=False, enable_chunked_prefill=True, **given
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    config.scheduler_config.async_scheduling = asynchronous  # which a CPU would refuse
    return config


def scheduler(build: Callable[..., Any], config: Any, blocks: int = 20_000) -> Any:
    """Build a scheduler as the engine core does."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    cache = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    config.cache_config.num_gpu_blocks = blocks
    return build(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )


class Feed:
    """Makes requests. Usage: `feed = Feed(); scheduler.add_request(feed("a", prompt=100))`."""

    def __init__(self) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK, sha256)
        self._fresh = 0

    def __call__(self, name: str, prompt: int | list[int], output: int = 16, **more: Any) -> Any:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        if isinstance(prompt, int):
            ids = list(range(self._fresh, self._fresh + prompt))
            self._fresh += prompt
        else:
            ids = prompt
        extra = more.pop("extra_args", None)
        params = SamplingParams(max_tokens=output, ignore_eos=True, extra_args=extra)
        params.update_from_generation_config({}, 0)
        return Request(
            request_id=name,
            prompt_token_ids=ids,
            sampling_params=params,
            pooling_params=None,
            block_hasher=self._hasher,
            **more,
        )


def result(scheduler: Any, output: Any) -> Any:
    """What a model would have answered: one token for each prompt that is complete."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    sampled = []
    for name in names:
        request = scheduler.requests.get(name)
        done = request is not None and request.num_computed_tokens >= request.num_tokens
        sampled.append([1] if done else [])
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def async_result(scheduler: Any, output: Any) -> Any:
    """One token for whoever's prompt was complete when this batch was scheduled."""
    answer = result(scheduler, output)
    answer.sampled_token_ids = [
        [1] if request is not None and not _was_chunk(request, output) else []
        for request in map(scheduler.requests.get, answer.req_ids)
    ]
    return answer


def _was_chunk(request: Any, output: Any) -> bool:
    # Tokens of later batches are counted as computed already: take them off.
    later = request.num_in_flight_tokens - output.num_scheduled_tokens[request.request_id]
    return request.num_computed_tokens - later < request.num_prompt_tokens


def step(scheduler: Any) -> Any:
    """One step, sync: decide it, run nothing, take the result in."""
    output = scheduler.schedule()
    scheduler.update_from_output(output, result(scheduler, output))
    return output


def drain(scheduler: Any, most: int = 100_000) -> Iterator[Any]:
    """Step until nothing is left, the flush of finished requests included."""
    for _ in range(most):
        if not scheduler.has_requests():
            return
        yield step(scheduler)
    raise AssertionError("the scheduler does not come to an end")
