from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkwise.engine.compile import (
    as_prompts,
    capture_sizes,
    compilation_mode,
    create_vllm_enhanced_compiler,
    model_name,
)
from chunkwise.engine.usual_names import (
    EnhancedAOTWithVLLMChunking,
    VLLMChunkedModelWrapper,
    VLLMChunkedPrefillConfig,
    VLLMChunkedPrefillOptimizer,
    create_enhanced_compiler_with_chunking,
)


def test_capture_sizes_fit_decodes_and_chunks() -> None:
    assert capture_sizes(16, None) == [1, 2, 4, 8, 16]
    assert capture_sizes(16, 256)[-2:] == [256, 272]
    assert max(capture_sizes(1024, 2048)) == 512


def test_modes_have_numbers_and_names() -> None:
    assert [compilation_mode(mode) for mode in (0, "none", "VLLM_COMPILE", 3)] == [0, 0, 3, 3]
    for wrong in ("max-autotune", 9, -1):
        with pytest.raises(ValueError, match="is no compilation mode"):
            compilation_mode(wrong)


def test_a_model_is_a_name_a_path_or_a_module_that_has_one() -> None:
    assert model_name("org/name") == "org/name"
    assert model_name(Path("/m")) == "/m"
    assert model_name(SimpleNamespace(name_or_path="a/b")) == "a/b"
    assert model_name(SimpleNamespace(config=SimpleNamespace(name_or_path="a/b"))) == "a/b"
    with pytest.raises(ValueError, match="name_or_path"):
        model_name(object())


def test_a_tokenizers_batch_becomes_prompts() -> None:
    batch = {"input_ids": [[1, 2, 0], [3, 4, 5]], "attention_mask": [[1, 1, 0], [1, 1, 1]]}
    assert as_prompts(batch) == [{"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [3, 4, 5]}]
    assert as_prompts({"input_ids": [1, 2]}) == [{"prompt_token_ids": [1, 2]}]
    assert as_prompts(["text"]) == ["text"]


def test_the_usual_names_are_the_real_things() -> None:
    optimizer = VLLMChunkedPrefillOptimizer(VLLMChunkedPrefillConfig(chunking_threshold=1000))
    assert [optimizer.should_chunk(n) for n in (1000, 1001)] == [False, True]
    assert [optimizer.get_optimal_chunk_size(n) for n in (47, 8000)] == [47, 1000]
    verdict = optimizer.analyze_dataset_for_optimal_threshold([47] * 97 + [2156] * 3)
    assert (verdict.name, verdict.threshold, verdict.chunking_rate) == ("selective", 2048, 0.03)
    assert optimizer.config.to_settings().long_prefill_token_threshold == 1000
    compiler = create_enhanced_compiler_with_chunking(chunking_threshold=512)
    assert isinstance(compiler, EnhancedAOTWithVLLMChunking)
    assert compiler == create_vllm_enhanced_compiler(chunking_threshold=512)
    assert hasattr(VLLMChunkedModelWrapper, "get_chunking_stats")
