"""What is read, how often and how far ahead, on the demo model.

tests/data/demo/routing.npz holds the router's choices on the held-out text and the guesses of the next layer's router,
recorded by the program that trained the model: `ids` [8, T, 4], `predicted` [7, T, 4] (for layers 1 to 7) and
`tokens` [T].
"""

import numpy as np
import pytest
from engine_cases import DATA, open_engine

TRACE = np.load(DATA / "demo" / "routing.npz")
LAYERS, EXPERTS = 8, 48


def distinct(ids: np.ndarray, chunk: int) -> list[set]:
    return [set(ids[a : a + chunk].ravel().tolist()) for a in range(0, len(ids), chunk)]


@pytest.mark.parametrize("chunk", [16, 32])
def test_read_ahead_is_what_the_guesses_allow(chunk):
    """With room for two layers' chunk, nearly everything guessed right is read ahead; of the rest little is read.

    Layer 0 has no guess by a router: it is read by popularity, which for chunks of 16 and 32 tokens of this model means
    all its experts, and what the chunk does not use of them is read in vain on a drive that is fast enough."""
    hit = wanted = guessed = 0
    for layer in range(1, LAYERS):
        pairs = zip(distinct(TRACE["ids"][layer], chunk), distinct(TRACE["predicted"][layer - 1], chunk), strict=True)
        for used, guess in pairs:
            hit, wanted, guessed = hit + len(used & guess), wanted + len(used), guessed + len(guess)
    recall = hit / wanted
    for used in distinct(TRACE["ids"][0], chunk):
        hit, guessed = hit + len(used), guessed + EXPERTS
    wrong = 1 - hit / guessed

    knobs = {"arena_slots": 2 * EXPERTS, "prompt_chunk": chunk, "prompt_sweep": chunk}
    tokens = TRACE["tokens"].astype(np.int32)
    engine = open_engine("demo", **knobs, prompt_pred=1)
    _, stats = engine.prefill(engine.session(), tokens, "none")
    assert stats["ahead"] / stats["lookups"] >= recall - 0.02
    assert stats["wasted"] / stats["issued"] <= wrong + 0.02

    engine = open_engine("demo", **knobs, prompt_pred=-1)
    _, off = engine.prefill(engine.session(), tokens, "none")
    assert off["ahead"] == 0 and off["lookups"] == stats["lookups"]


def test_lookups_are_the_distinct_choices():
    """Layer 0's routing depends on the tokens alone, so the trace counts it exactly; in all layers near-ties may part
    the two programs in a few places."""
    engine = open_engine("demo", prompt_chunk=16, prompt_sweep=16)
    _, stats = engine.prefill(engine.session(), TRACE["tokens"].astype(np.int32), "none")
    want = sum(len(s) for layer in range(LAYERS) for s in distinct(TRACE["ids"][layer], 16))
    assert abs(stats["lookups"] - want) <= 0.002 * want


def test_a_sweep_reads_each_expert_once():
    tokens = TRACE["tokens"][:2000].astype(np.int32)
    slots = LAYERS * EXPERTS // 4
    engine = open_engine("demo", arena_slots=slots, prompt_chunk=256, prompt_sweep=2000)
    _, stats = engine.prefill(engine.session(), tokens, "none")
    assert stats["sweeps"] == 1 and stats["chunks"] == 8
    used = {(layer, e) for layer in range(LAYERS) for e in TRACE["ids"][layer, :2000].ravel().tolist()}
    # IQ2_XS gate and up [128, 256], Q2_0 down [256, 128].
    expert_bytes = 2 * 74 * 256 * 128 // 256 + 18 * 128 * 256 // 64
    assert expert_bytes * LAYERS * EXPERTS == pytest.approx(10.81e6, rel=0.01)  # the model's own table of sizes
    assert stats["issued"] <= len(used) * 1.02
    assert stats["bytes_read"] <= 1.02 * len(used) * expert_bytes

    engine = open_engine("demo", arena_slots=slots, prompt_chunk=256, prompt_sweep=500)
    _, four = engine.prefill(engine.session(), tokens, "none")
    assert four["sweeps"] == 4
    assert four["issued"] <= 4 * len(used) * 1.02


def test_a_warm_arena_reads_nothing():
    engine = open_engine("demo", arena_slots=LAYERS * EXPERTS)
    tokens = TRACE["tokens"][:1000].astype(np.int32)
    engine.prefill(engine.session(), tokens, "none")
    _, again = engine.prefill(engine.session(), tokens, "none")
    assert again["bytes_read"] == 0 and again["missed"] == 0 and again["resident"] == again["lookups"]


def test_fake_stream_reads_nothing_and_says_so():
    engine = open_engine("demo", stream_fake=True, prompt_chunk=64)
    assert any("STREAM_FAKE" in w for w in engine.warnings)
    logits, stats = engine.prefill(engine.session(), TRACE["tokens"][:300].astype(np.int32))
    assert stats["stream_fake"] is True
    assert stats["bytes_read"] == 0 and stats["lookups"] == stats["resident"] > 0
    assert np.isfinite(logits).all()


def test_n_gram_rows_are_read_once_each():
    """The demo's table: 2 orders x 4 heads a token."""
    engine = open_engine("demo", prompt_sweep=1000)
    tokens = np.full(1000, 100, np.int32)
    _, stats = engine.prefill(engine.session(), tokens, "none")
    assert stats["table_rows"] == 8000
    # Contexts: (reset, reset), (reset, 100), (100, 100) before the token; no more than 3 x 8 distinct rows.
    assert stats["table_reads"] <= 24
