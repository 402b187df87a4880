"""strata synth --skew: popularity as asked for, and layers that predict each other, as the engine finds them."""

import json
import math

import numpy as np
import pytest
import strata
import strata.cli
from strata import InputError, synth

EXPERTS, LAYERS, VOCAB = 64, 6, 1500


def run_of(tmp_path, skew, tokens=512, like="demo", layers=LAYERS):
    path = tmp_path / "m.gguf"
    s = synth.spec(like, layers=layers, experts=EXPERTS, vocab=VOCAB, table_rows=3000, skew=skew)
    assert synth.make(path, s) == synth.file_bytes(s) == path.stat().st_size
    with strata.load(path, context=tokens, prompt_pred=1) as model:
        ids = np.random.default_rng(1).integers(0, VOCAB, tokens).astype(np.int32)
        result = model.prefill(ids, record=True)
    assert np.isfinite(result.logits).all() and result.logits.std() > 0.1
    return result.routing


def test_popularity_by_hand():
    assert synth.popularity(8, 2, 0) == pytest.approx([0.25] * 8)
    # Weights 1/3 and 2/3 (the quantiles 1/4 and 3/4 of a normal distribution are 0.67449 from its middle). With d draws
    # exp(-d/3) + exp(-2d/3) = 1, so exp(-d/3) is the golden section.
    golden = (math.sqrt(5) - 1) / 2
    assert synth.popularity(2, 1, math.log(2) / (2 * 0.6744898)) == pytest.approx([1 - golden, golden], abs=1e-6)
    for skew in (0, 0.15, 1.9, 4):
        p = synth.popularity(512, 10, skew)
        assert p.sum() == pytest.approx(10, rel=1e-3) and (np.diff(p) >= 0).all() and p[0] > 0 and p[-1] < 1


def test_the_recorded_distinct_experts():
    """The published model: 1024 tokens touch 410 of 512 experts, with 10 each; 2048 touch 470."""
    p = synth.popularity(512, 10, 1.9)
    assert (1 - (1 - p) ** 1024).sum() == pytest.approx(410, rel=0.02)
    assert (1 - (1 - p) ** 2048).sum() == pytest.approx(470, rel=0.05)


def test_without_a_skew_all_are_used_alike(tmp_path):
    run = run_of(tmp_path, 0)
    # Equal chances would give 64 (1 - (60 / 64)^16) = 41.2; random routers are a little uneven.
    assert 34 < run.distinct(16) < 42
    assert run.popularity()[0] < 4 / EXPERTS
    assert run.recall().mean() < 0.7


def test_a_skew_like_the_published_model(tmp_path):
    run = run_of(tmp_path, 1.9)
    # By `popularity`, whose own figures are above: 22.5 of 64 in 16 tokens, 37.9 in 64, 51.6 in 256.
    assert 20.5 < run.distinct(16) < 24.5
    assert 35 < run.distinct(64) < 41
    assert 48.5 < run.distinct(256) < 54.5
    assert 4 * run.popularity()[:3] == pytest.approx([0.78, 0.49, 0.36], abs=0.1)
    assert run.recall().min() > 0.78 and run.recall().max() < 0.95
    assert run.precision(64).min() > 0.85
    # Every layer has favourites of its own.
    favourites = {int(n.argmax()) for n in run.counts()}
    assert len(favourites) > 2


def test_a_skew_like_the_demo(tmp_path):
    """Recorded: the most used expert 1.34 of the mean, the least 0.68 (worst layer); recall 0.72 to 0.93."""
    run = run_of(tmp_path, 0.15, tokens=1500)
    n = np.sort(run.counts(), 1).mean(0) / run.counts().mean()
    assert 1.2 < n[-1] < 2 and 0.4 < n[0] < 0.8
    assert run.recall().min() > 0.72 and run.recall().max() < 0.95


@pytest.mark.long
def test_real_shapes_with_a_skew(tmp_path):
    """Of 64 experts 10 a token: 1 - (1 - p)^n summed over `popularity(64, 10, 1.9)` is 33.5, 49.7, 57.4."""
    run = run_of(tmp_path, 1.9, like="real", layers=4)
    p = synth.popularity(64, 10, 1.9)
    for n in (16, 64, 256):
        assert run.distinct(n) == pytest.approx((1 - (1 - p) ** n).sum(), rel=0.06)
    assert run.recall().min() > 0.78 and run.recall().max() < 0.95


def test_no_skew_is_the_file_of_before(tmp_path):
    """A skew touches routers, embedding and what feeds the routers; without one nothing has changed."""
    bytes_of = {}
    for skew in (0, 1.9):
        s = synth.spec("demo", layers=2, experts=6, vocab=320, table_rows=600, skew=skew)
        weights = synth._Weights(s)
        bytes_of[skew] = {t.name: b"".join(bytes(p) for p in weights.pieces(t)) for t in synth.tensors(s)}
    changed = {n for n in bytes_of[0] if bytes_of[0][n] != bytes_of[1.9][n]}
    per_layer = ("hc_ffn_norm.weight", "hc_ffn_up.weight", "ffn_gate_inp.weight")
    assert changed == {"token_embd.weight", *(f"blk.{i}.{n}" for i in range(2) for n in per_layer)}


def test_the_option(tmp_path, capsys):
    path = tmp_path / "m.gguf"
    sizes = ("--like", "demo", "--layers", "2", "--experts", "6", "--vocab", "320", "--table-rows", "600")
    with pytest.raises(SystemExit) as caught:
        strata.cli.main(["synth", str(path), *sizes, "--skew", "0.5", "--json", "-q"])
    assert caught.value.code == 0 and json.loads(capsys.readouterr().out)["skew"] == 0.5
    assert b"random weights, seed 0, skew 0.5" in path.read_bytes()[:4096]
    with pytest.raises(InputError, match="skew"):
        synth.spec("demo", skew=4.5)
    with pytest.raises(InputError, match="skew"):
        synth.spec("demo", skew=math.nan)
