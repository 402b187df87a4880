"""Teacher-forced comparison: against scipy, by hand, and a llama.cpp file put together from its layout."""

import json
import math
import struct

import numpy as np
import pytest
import strata
from strata import kld
from strata.cli import main
from strata.errors import InputError

scipy_special = pytest.importorskip("scipy.special")
scipy_stats = pytest.importorskip("scipy.stats")


class Letters:
    """A tokenizer whose token 3 is "d"."""

    n_vocab = 1000

    def decode(self, ids, *, skip_special=True):
        return "".join(chr(97 + i % 26) for i in ids)


def write_own(path, tokens, first, logits):
    header = json.dumps({"n_vocab": logits.shape[1], "first": first, "tokens": list(map(int, tokens))}).encode()
    data = b"STRLOGT1" + struct.pack("<Q", len(header)) + header
    path.write_bytes(data + b"\0" * (-len(data) % 64) + logits.astype("<f4").tobytes())


def write_llama(path, n_vocab, windows, rows):
    """tokens [n_chunk, n_ctx]; rows: per window [(scale, least, codes [n_vocab])]."""
    n_chunk, n_ctx = windows.shape
    data = b"_logits_" + struct.pack("<iii", n_ctx, n_vocab, n_chunk) + windows.astype("<i4").tobytes()
    for window in rows:
        for scale, least, codes in window:
            row = struct.pack("<ff", scale, least) + np.asarray(codes, "<u2").tobytes()
            data += row + b"\0\0" * (n_vocab % 2)
    path.write_bytes(data)


def test_against_scipy(tmp_path):
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 3, (2, 40, 100)).astype(np.float32)
    tokens = rng.integers(0, 100, 46)
    write_own(tmp_path / "ref", tokens, 5, a)
    found = kld.measure([[b[:7], b[7:]]], kld.Reference(tmp_path / "ref"), Letters(), k=5)
    p, q = scipy_special.softmax(a.astype(float), axis=1), scipy_special.softmax(b.astype(float), axis=1)
    each = scipy_stats.entropy(p, q, axis=1)
    assert found.places == 40 and found.mean == pytest.approx(each.mean(), rel=1e-12)
    assert found.maximum == pytest.approx(each.max()) and found.percentiles["90"] == pytest.approx(
        np.percentile(each, 90)
    )
    following = tokens[6:]
    rows = np.arange(40)
    assert found.perplexity_ref == pytest.approx(math.exp(-np.log(p[rows, following]).mean()))
    assert found.perplexity == pytest.approx(math.exp(-np.log(q[rows, following]).mean()))
    assert found.top1 == np.mean(p.argmax(1) == q.argmax(1))
    top = [[set(np.argsort(-x[i])[:5]) for i in rows] for x in (p, q)]
    assert found.topk == pytest.approx(np.mean([len(s & t) / 5 for s, t in zip(*top, strict=True)]))
    assert found.equal_bits is False and len(found.worst) == 20
    assert found.worst[0].kld == pytest.approx(each.max()) and found.worst[0].position == 5 + int(each.argmax())
    first = int(np.flatnonzero(p.argmax(1) != q.argmax(1))[0])
    assert found.first_flip.position == 5 + first
    by_size = np.sort(np.log(p[first]))
    assert found.first_flip.ref_gap == pytest.approx(by_size[-1] - by_size[-2])


def test_by_hand(tmp_path):
    """p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KLD = ln(2)/2 - ln(2)/4 = ln(2)/4."""
    write_own(tmp_path / "ref", [0, 1], 0, np.log(np.array([[2.0, 1, 1]])))
    found = kld.measure(
        [[np.log(np.array([[1.0, 2, 1]], np.float32))]], kld.Reference(tmp_path / "ref"), Letters(), k=2
    )
    assert found.mean == pytest.approx(math.log(2) / 4, abs=1e-7)
    assert found.perplexity_ref == pytest.approx(4) and found.perplexity == pytest.approx(2)
    assert found.top1 == 0 and found.topk == 1
    assert (found.worst[0].ref_top, found.worst[0].own_top, found.worst[0].forced) == ("a", "b", "b")


def test_equal_is_zero(tmp_path):
    a = np.random.default_rng(1).normal(0, 30, (4, 50)).astype(np.float32)
    write_own(tmp_path / "ref", range(10, 15), 0, a)
    found = kld.measure([[a]], kld.Reference(tmp_path / "ref"), Letters())
    assert (found.mean, found.maximum, found.top1, found.topk, found.equal_bits) == (0, 0, 1, 1, True)
    assert found.first_flip is None


@pytest.mark.parametrize("n_vocab", [4, 5])
def test_llama_file(tmp_path, n_vocab):
    """Context 6: places after tokens 3 and 4 of each window. log p = scale x code + least, by hand."""
    windows = np.array([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 3, 2]])
    scale, least = 0.001, -5.0
    codes = np.array([[4600, 3300, 2000, 1000, 0][:n_vocab], [1000, 4600, 3300, 2000, 0][:n_vocab]])
    rows = [[(scale, least, c) for c in codes] for _ in windows]
    write_llama(tmp_path / "base", n_vocab, windows, rows)
    ref = kld.Reference(tmp_path / "base")
    assert ref.kind == "llama.cpp" and ref.n_vocab == n_vocab
    assert [(w.tokens.tolist(), w.first, w.places) for w in ref.windows] == [(w.tolist(), 3, 2) for w in windows]
    want = scale * codes + least
    assert ref.rows(1, 0, 2) == pytest.approx(want, abs=1e-6)
    own = np.zeros((2, n_vocab), np.float32)
    found = kld.measure([[own], [own]], ref, Letters(), k=2)
    uniform = math.log(n_vocab)
    assert found.mean == pytest.approx(np.sum(np.exp(want) * (want + uniform)) / 2, abs=1e-6)
    following = [0, 1, 3, 2]
    assert found.perplexity_ref == pytest.approx(
        math.exp(-np.mean([want[i % 2, t] for i, t in enumerate(following)])), rel=1e-6
    )
    assert found.perplexity == pytest.approx(n_vocab) and found.equal_bits is None


def test_llama_leaves_out_the_clipped(tmp_path):
    """Tokens stored below -16 do not count in llama.cpp's sum, so not here."""
    windows = np.array([[0, 1, 2, 0]])
    write_llama(tmp_path / "base", 3, windows, [[(0.001, -17.0, [17000, 500, 0])]])
    found = kld.measure([[np.zeros((1, 3), np.float32)]], kld.Reference(tmp_path / "base"), Letters(), k=1)
    assert found.mean == pytest.approx(math.log(3), abs=1e-4)


@pytest.mark.parametrize("damage", ["magic", "cut", "long", "header", "empty"])
@pytest.mark.parametrize("kind", ["own", "llama"])
def test_damaged_files(tmp_path, kind, damage):
    path = tmp_path / "f"
    if kind == "own":
        write_own(path, [0, 1, 2], 0, np.zeros((2, 4)))
    else:
        write_llama(path, 4, np.array([[0, 1, 2, 3]]), [[(0.1, -1, [1, 2, 3, 4])]])
    data = path.read_bytes()
    path.write_bytes({
        "magic": b"GGUF" + data[4:], "cut": data[:-1], "long": data + b"1",
        "header": data[:8] + b"\xff" * 8 + data[16:], "empty": b"",
    }[damage])  # fmt: skip
    with pytest.raises(InputError, match="f"):
        kld.Reference(path)


def test_other_vocabulary(tmp_path):
    write_own(tmp_path / "ref", [0, 1, 2], 0, np.zeros((2, 4)))
    with strata.load(strata.demo_path()) as model, pytest.raises(InputError, match="over 4 tokens"):
        kld.compare(model, kld.Reference(tmp_path / "ref"))


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    found = capsys.readouterr()
    return caught.value.code, found.out, found.err


def test_command_on_the_demo_model(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text(
        "Once upon a time there was a girl named Lucy. She lived in a house on the hill. One day she went out."
    )
    ref = tmp_path / "ref"
    code, out, _ = run(capsys, "kld", "--demo", "-f", text, "--prompt-tokens", 8, "--logits-out", ref, "-q", "--json")
    first = json.loads(out)
    assert code == 0 and first["floor"]["mean"] == 0 and first["floor"]["equal_bits"] is True
    code, out, _ = run(capsys, "kld", "--demo", "--logits-ref", ref, "-q", "--json", "--steps", "--prompt-chunk", 3)
    second = json.loads(out)
    assert code == 0 and second["divergence"]["equal_bits"] is True and second["divergence"]["top1"] == 1
    assert second["divergence"]["perplexity"] == first["perplexity"]
    code, out, _ = run(capsys, "kld", "--demo", "--logits-ref", ref, "-q", "--kv-type", "f32", "--no-floor")
    assert code == 0 and "same most likely token" in out
    assert run(capsys, "kld", "--demo", "-f", text, "--logits-ref", ref)[0] in (0, 1)
    code, _, err = run(capsys, "kld", "--demo", "-f", text, "--prompt-tokens", 500, "--logits-out", ref, "-q")
    assert code == 1 and "has" in err and "tokens" in err


def test_perplexity_of_the_held_out_text(tmp_path, capsys):
    """tests/data/demo/stats.json: llama.cpp, windows of 512 tokens, second halves: 2.0663; float32 in Python 2.0675."""
    from pathlib import Path

    demo = Path(__file__).parents[1] / "data" / "demo"
    want = json.loads((demo / "stats.json").read_text())["heldout"]["perplexity_windows_512_plain"]
    losses = []
    with strata.load(strata.demo_path(), kv_type="f32") as model:
        ids = np.array(model.tokenizer.encode((demo / "heldout.txt").read_text()), np.int32)
        assert len(ids) == json.loads((demo / "stats.json").read_text())["heldout"]["tokens_plain"]
        for at in range(0, len(ids) // 512 * 512, 512):
            window = kld.Window(ids[at : at + 512], 256)
            done = 256
            for logits in kld.forced_logits(model, window):
                log_p = kld.log_softmax(logits)
                losses += [-log_p[i, window.tokens[done + 1 + i]] for i in range(len(logits))]
                done += len(logits)
    assert math.exp(np.mean(losses)) == pytest.approx(want, rel=2e-3)
