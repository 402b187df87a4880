"""strata synth: what it writes is a whole, valid, sane model, and what it cannot write leaves nothing behind."""

import hashlib
import json
import os
import subprocess
import sys

import gguf_io
import layout
import numpy as np
import pytest
import reference
import strata
from strata import Config, DiskSpaceError, InputError, _core, cli, gguf_write, synth

SMALL = {
    "demo": {"layers": 5, "experts": 12, "vocab": 320, "table_rows": 2000},
    "real": {"layers": 4, "experts": 12, "vocab": 320, "table_rows": 3000},
}
MIXED = {
    "types": "gate=Q4_0,up=IQ4_NL,dense=Q6_K,table=Q8_0",
    "types_at": ("0,2-3:gate=Q4_K,up=IQ2_XS", "3:down=Q8_0,dense=F16"),
}


def make(path, like="demo", **wishes):
    s = synth.spec(like, **(SMALL[like] | wishes))
    assert synth.make(path, s) == synth.file_bytes(s) == path.stat().st_size
    return s


def prefill(path, ids, **knobs):
    engine = _core.Engine(str(path), Config(context=512, **knobs).to_core())
    taps = {}
    logits, _ = engine.prefill(engine.session(), ids, "all", None, taps)
    engine.close()
    return logits, taps


def plain_numbers(path, ids, monkeypatch):
    """Logits of the plain numpy model; block formats through the core, whose decoders have tests of their own."""
    monkeypatch.setattr(
        gguf_io,
        "dequantize",
        lambda raw, name: _core.dequantize(name, np.ascontiguousarray(raw)).reshape(len(raw), -1),
    )
    return reference.run(reference.Model(str(path)), ids)[0]


def same(got, want):
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= 2e-4 * np.abs(want).max()


def test_what_is_no_file_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(InputError, match="is no file"):
            make(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"]


def test_int8_where_gate_and_up_differ(tmp_path):
    """They share activations, in a form that kernels of both types can read: all instruction sets, one row and many."""
    pairs = ("Q2_0 Q4_K", "Q4_K Q8_0", "IQ2_XS Q2_0", "IQ4_NL Q4_0", "Q8_0 Q2_0")
    at = tuple("{}:gate={},up={}".format(i, *pair.split()) for i, pair in enumerate(pairs))
    path, ids = tmp_path / "m.gguf", np.arange(7, 47, dtype=np.int32)
    make(path, types_at=at)
    want, _ = prefill(path, ids, activations="int8", isa="portable")
    for isa in _core.cpu_isas():
        for chunk in (1, 3, 40):
            got, _ = prefill(path, ids, activations="int8", isa=isa, prompt_chunk=chunk, threads=2)
            assert got.tobytes() == want.tobytes(), (isa, chunk)
    exact, _ = prefill(path, ids, activations="f32")
    error = np.abs(want - exact).max(1) / np.abs(exact).max(1)
    assert 0 < np.median(error) < 0.05  # a step is 1 / 254 of the largest


@pytest.mark.parametrize("wishes", [{}, MIXED], ids=["usual", "mixed"])
def test_demo_shapes(wishes, tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    make(path, **wishes)
    layout.check(gguf_io.GGUF(str(path)))
    ids = np.random.default_rng(1).integers(0, 300, 60).astype(np.int32)
    ids[20] = 285  # <|endoftext|>: n-grams begin anew
    same(prefill(path, ids, activations="f32")[0], plain_numbers(path, ids, monkeypatch))


@pytest.mark.long
@pytest.mark.parametrize("wishes", [{}, MIXED | {"types": "gate=Q4_0,dense=Q8_0"}], ids=["usual", "mixed"])
def test_real_shapes(wishes, tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    make(path, "real", **wishes)
    layout.check(gguf_io.GGUF(str(path)))
    ids = np.random.default_rng(1).integers(0, 300, 24).astype(np.int32)
    same(prefill(path, ids, activations="f32")[0], plain_numbers(path, ids, monkeypatch))


def test_types_of_each_layer(tmp_path):
    path = tmp_path / "m.gguf"
    make(path, **MIXED)
    types = {t["name"]: t["type"] for t in _core.GgufFile(path).tensors}
    gates = [types[f"blk.{i}.ffn_gate_exps.weight"] for i in range(5)]
    assert gates == ["Q4_K", "Q4_0", "Q4_K", "Q4_K", "Q4_0"]
    assert [types[f"blk.{i}.ffn_down_exps.weight"] for i in range(5)] == ["Q2_0", "Q2_0", "Q2_0", "Q8_0", "Q2_0"]
    assert types["blk.2.attn_qkv.weight"] == "Q6_K" and types["blk.3.attn_q.weight"] == "F16"
    assert types["blk.2.hc_ffn_up.weight"] == "Q8_0", "a row of 32 values is no whole block of Q6_K"
    assert types["per_layer_token_embd.weight"] == "Q8_0" and types["blk.1.ffn_gate_inp.weight"] == "F32"


@pytest.mark.parametrize("like", ["demo", pytest.param("real", marks=pytest.mark.long)])
def test_routers_use_all_experts(like, tmp_path):
    """A few hundred tokens use every expert, and none is used by more than half of them."""
    path = tmp_path / "m.gguf"
    s = make(path, like, layers=8 if like == "demo" else 4, experts=64, vocab=512)
    ids = np.random.default_rng(1).integers(0, 256, 300).astype(np.int32)
    logits, taps = prefill(path, ids)
    assert np.isfinite(logits).all() and 0.3 < logits.std() < 10 and len(set(logits.argmax(-1))) > 100
    for layer in range(s.layers):
        used = np.bincount(taps[f"L{layer}/router_ids"].ravel(), minlength=s.experts)
        assert used.min() > 0 and used.max() < len(ids) / 2, f"layer {layer}"


def test_experts_differ(tmp_path):
    path = tmp_path / "m.gguf"
    make(path, experts=300)
    for t in gguf_io.GGUF(str(path)).tensors.values():
        if "_exps." in t.name:
            assert len({bytes(e) for e in t.raw.reshape(300, -1)}) == 300, t.name


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_seed_decides_every_byte(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make(tmp_path / name, seed=seed)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")
    # A tensor's bytes depend on the seed and its name, not on what else is in the file.
    make(tmp_path / "more", seed=3, layers=6)
    a, more = (gguf_io.GGUF(str(tmp_path / n)).tensors for n in ("a", "more"))
    assert all(bytes(a[n].raw) == bytes(more[n].raw) for n in a)


def test_published_constants():
    """The rule gives the published model's multipliers and head sizes (docs/file-format.md, section 2)."""
    assert synth.multipliers(248320) == [23703573157769, 20109073645365, 8052911324071]
    sizes = synth.table_primes(synth.spec("real", table_rows=16 * 20_000_003))
    ends = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171]
    assert sizes == [20_000_000 + e for e in ends]


def test_tokenizer(tmp_path):
    path = tmp_path / "m.gguf"
    make(path)
    tokens = strata.Tokenizer.from_gguf(_core.GgufFile(path))
    text = "the ring and the rest — 東京\x00\n"
    ids = tokens.encode(text)
    assert tokens.decode(ids) == text and len(ids) < len(text.encode())
    assert tokens.n_vocab == 320 and tokens.encode("<|im_end|>") == [287] and tokens.eos_ids == {285, 287}


class TestSize:
    @pytest.mark.parametrize("size", [3e9, 10e9, 30e9, 60e9])
    @pytest.mark.parametrize("fixed", [{}, {"layers": 6}, {"experts": 256}])
    def test_comes_near_and_never_over(self, size, fixed):
        s = synth.spec("real", size=int(size), **fixed)
        one_more = 1_430_000 * s.layers if "experts" not in fixed else 256 * 1_500_000 + 100e6
        if s.experts < synth.MAX_EXPERTS:
            assert size - one_more <= synth.file_bytes(s) <= size
        assert all(getattr(s, name) == value for name, value in fixed.items())
        assert s.layers >= (2 if "experts" in fixed else 4) and s.experts >= 10

    def test_too_small(self):
        with pytest.raises(InputError, match="too small: 4 layers of 10 experts take"):
            synth.spec("real", size=1_000_000_000)


@pytest.mark.parametrize(
    "wishes, message",
    [
        ({"types": "gate=Q9"}, "no type 'Q9'"),
        ({"types": "mlp=Q8_0"}, "no part 'mlp'"),
        ({"types": "down=Q4_K", "like": "real"}, "a row of 640 values is not whole Q4_K blocks"),
        ({"types_at": ("7:gate=Q8_0",)}, "no layer 7"),
        ({"types_at": ("gate=Q8_0",)}, "should begin with layers"),
        ({"types_at": ("1:table=Q8_0",)}, "belongs to no layer range"),
        ({"types_at": ("1:",)}, "should name types"),
        ({"layers": 1}, "layers = 1 is not allowed"),
        ({"experts": 3}, "experts = 3 is not allowed"),
        ({"vocab": 200}, "vocab = 200 is not allowed"),
        ({"like": "big"}, "no shape 'big'"),
        ({"size": 10**9}, "nothing left to choose"),
    ],
)
def test_refused(wishes, message):
    with pytest.raises(InputError, match=message):
        synth.spec(**{"like": "demo", "layers": 5, "experts": 12} | wishes)


class TestNothingIsLeftBehind:
    def test_free_space_is_looked_at_first(self, tmp_path, monkeypatch):
        s = synth.spec("demo", **SMALL["demo"])
        monkeypatch.setattr(gguf_write, "free_bytes", lambda _: 1000)
        with pytest.raises(DiskSpaceError, match="1000 bytes free") as caught:
            synth.make(tmp_path / "m.gguf", s)
        assert (caught.value.needed, caught.value.free) == (synth.file_bytes(s), 1000)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("reserve", [True, False], ids=["reserved", "while writing"])
    def test_full_drive(self, reserve, tmp_path, monkeypatch):
        """A drive that says it has room and then has none."""
        tmp_path = tmp_path / "small"
        tmp_path.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", tmp_path]).returncode:
            pytest.skip("a small file system can be mounted by root only")
        try:
            monkeypatch.setattr(gguf_write, "free_bytes", lambda _: 10**12)
            if not reserve:
                monkeypatch.setattr(gguf_write._Writer, "reserve", lambda _: None)
            with pytest.raises(DiskSpaceError, match="bytes free"):
                make(tmp_path / "m.gguf")
            assert list(tmp_path.iterdir()) == []
        finally:
            subprocess.run(["umount", tmp_path], check=True)

    def test_a_failing_piece(self, tmp_path):
        s = synth.spec("demo", **SMALL["demo"])

        def pieces(_):
            raise KeyboardInterrupt

        (tmp_path / "m.gguf").write_bytes(b"old")
        with pytest.raises(KeyboardInterrupt):
            gguf_write.write(tmp_path / "m.gguf", synth.metadata(s), synth.tensors(s), pieces)
        assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("m.gguf", b"old")]

    def test_wrong_length(self, tmp_path):
        s = synth.spec("demo", **SMALL["demo"])
        with pytest.raises(InputError, match="1 bytes given"):
            gguf_write.write(
                tmp_path / "m.gguf", synth.metadata(s), synth.tensors(s), lambda _: [np.zeros(1, np.uint8)]
            )
        assert list(tmp_path.iterdir()) == []

    def test_interrupt(self, tmp_path):
        """Ctrl-C while a large file is being written."""
        code = (
            "import _thread, sys\n"
            "from strata import cli, synth\n"
            "real = synth.make\n"
            "def make(path, s, progress):\n"
            "    def report(done, total):\n"
            "        assert (path.parent / (path.name + '.partial')).exists() and not path.exists()\n"
            "        _thread.interrupt_main()\n"
            "    return real(path, s, report)\n"
            "synth.make = make\n"
            "cli.main(['synth', sys.argv[1], '--like', 'demo', '--experts', '300'])\n"
        )
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.gguf"], capture_output=True, text=True)
        assert done.returncode == 130 and done.stderr.endswith("interrupted.\n"), done.stderr
        assert list(tmp_path.iterdir()) == []


class TestCommand:
    @pytest.fixture
    def run(self, capsys):
        def call(*args):
            with pytest.raises(SystemExit) as caught:
                cli.main(["synth", *map(str, args)])
            return caught.value.code, *capsys.readouterr()

        return call

    def test_json(self, run, tmp_path):
        path = tmp_path / "m.gguf"
        size = ("--like", "demo", "--layers", 4, "--size", "5M", "--vocab", 400)
        code, out, err = run(path, *size, "--types", "dense=Q8_0", "--types-at", "0:down=Q8_0", "--json")
        report = json.loads(out)
        assert code == 0 and "4 layers" in err
        assert report["bytes"] == path.stat().st_size <= 5_000_000 and report["layers"] == 4
        assert [t["down"] for t in report["types"]] == ["Q8_0", "Q2_0", "Q2_0", "Q2_0", "Q2_0"]
        code, out, err = run(path, *size)
        assert code == 2 and "there already" in err
        code, out, err = run(path, *size, "--force", "-q")
        assert code == 0 and "MB/s" in out and err == ""

    def test_wrong_size(self, run, tmp_path):
        code, _, err = run(tmp_path / "m.gguf", "--size", "many")
        assert code == 2 and "write it as 24G" in err

    def test_no_room(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr(gguf_write, "free_bytes", lambda _: 1000)
        code, _, err = run(tmp_path / "m.gguf", "--like", "demo")
        assert code == 1 and err.rstrip().rsplit("\n", 1)[-1].startswith("error: ") and "1000 bytes free" in err
