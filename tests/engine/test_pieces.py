from hypothesis import given
from hypothesis import strategies as st

from chunkwise.engine.pieces import Pieces


def test_a_short_prompt_waits_for_a_step_that_takes_it_whole() -> None:
    whole = Pieces(2048, all_prompts=False)
    assert whole.allow(prompt=47, computed=0, offered=7) == 0
    assert whole.allow(prompt=47, computed=0, offered=47) == 47
    assert whole.allow(prompt=47, computed=32, offered=15) == 15  # the rest was cached
    assert whole.allow(prompt=5000, computed=0, offered=7) == 7
    assert whole.allow(prompt=47, computed=50, offered=1) == 1  # decoding
    assert whole.fits(4096, 256)
    assert not whole.fits(2048, 256)
    assert not whole.fits(4096, 256, cap=512)  # it would never be offered a whole piece
    assert whole.fits(4096, 256, cap=2048)


@given(st.integers(1, 500), st.integers(1, 3000), st.lists(st.integers(1, 3000), min_size=1))
def test_fixed_cuts_depend_on_the_prompt_alone(size: int, prompt: int, offers: list[int]) -> None:
    pieces, computed, cuts = Pieces(size, all_prompts=True), 0, []
    for offered in [*offers, *[size] * (prompt // size + 1)]:
        if computed < prompt:
            computed += pieces.allow(prompt, computed, min(offered, prompt - computed))
            cuts.append(computed)
    assert computed == prompt
    assert sorted({cut for cut in cuts if cut}) == sorted({*range(size, prompt, size), prompt})
