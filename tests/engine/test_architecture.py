"""Rules that have gone wrong in other engines, each against the numpy reference or what the rule itself says."""

import re
from typing import ClassVar

import gguf_io
import numpy as np
import pytest
import reference
import strata
from engine_cases import block_table, open_engine, path_of, prompt, rewrite, run
from strata import ModelFormatError, StrataError

RATIO = 4
BUDGETS = {"tiny-f32": 32, "small-q8_0": 64}
RATIOS = "qwen4exp.attention.compress_ratios"


def reference_run(path, ids):
    taps = {}
    logits, _ = reference.run(reference.Model(str(path), np.float64), ids, None, taps)
    assert min(v.min() for k, v in taps.items() if k.endswith("_gap")) > 1e-6  # no choice is ambiguous
    return logits, taps


@pytest.fixture
def dense(tmp_path):
    """The tiny model with block ratio 0: it attends to everything."""
    ratios = gguf_io.GGUF(str(path_of("tiny-f32"))).kv[RATIOS]
    return rewrite(path_of("tiny-f32"), tmp_path / "dense.gguf", {RATIOS: [0] * len(ratios)})


class TestBlocks:
    @pytest.mark.parametrize("chunk", [None, 1, 3, 6, 7])
    @pytest.mark.parametrize("name", BUDGETS)
    def test_around_the_budget(self, name, chunk):
        """C1: budget + 1 to + 8 tokens, chunks that end inside a block; also chunks as long as the budget and some."""
        budget = BUDGETS[name]
        ids = prompt(name, budget + 8)
        want, want_taps = reference_run(path_of(name), ids)
        layers = [k for k in want_taps if k.endswith("/qsa_blocks")]
        assert (want_taps[layers[0]].sum(1).max() == budget // RATIO) and layers
        for n in range(budget + 1, budget + 9):
            size = chunk or budget + n % RATIO
            engine, taps = open_engine(name, prompt_chunk=size), {}
            logits, _ = engine.prefill(engine.session(), ids[:n], "all", None, taps)
            for layer in layers:
                blocks = block_table(taps[layer], n)
                assert (blocks == want_taps[layer][:n, : n // RATIO]).all(), f"{layer}, {n} tokens, chunk {size}"
            assert np.abs(logits - want[:n]).max() <= 2e-4, f"{n} tokens, chunk {size}"

    def test_the_indexer_is_used(self, dense):
        """C3: beyond the budget the result is that of the chosen blocks and not that of all."""
        ids = prompt("tiny-f32", 4 * BUDGETS["tiny-f32"])
        want_sparse, _ = reference_run(path_of("tiny-f32"), ids)
        want_dense, taps = reference_run(dense, ids)
        assert not [k for k in taps if "qsa" in k]
        first = BUDGETS["tiny-f32"] + RATIO - 1  # the first position with more complete blocks than the budget
        differ = np.abs(want_sparse - want_dense).max(1)
        assert differ[:first].max() < 1e-9 and differ[first:].max() > 0.05
        for path, want in ((path_of("tiny-f32"), want_sparse), (dense, want_dense)):
            engine = open_engine(path)
            assert np.abs(engine.prefill(engine.session(), ids, "all")[0] - want).max() <= 2e-4

    def test_ratio_set_by_hand(self, dense, tmp_path):
        """A file without ratios is dense and says so; qsa_ratio gives it the model's own."""
        ids = prompt("tiny-f32", 100)
        assert any("attention is dense" in w for w in open_engine(dense).warnings)
        assert open_engine(path_of("tiny-f32")).warnings == []
        by_hand = run(dense, ids, tmp_path / "dump", qsa_ratio=RATIO)
        assert by_hand.differs(run("tiny-f32", ids, tmp_path / "dump")) == ""


class TestTies:
    """N1: of equal scores the lower number is taken first."""

    def routers(self, change):
        out = {}
        for layer in range(5):
            name = f"blk.{layer}.ffn_gate_inp.weight"
            tensor = gguf_io.GGUF(str(path_of("tiny-f32"))).tensors[name]
            assert tensor.type == "F32"
            out[name] = ("F32", change(tensor.f32().copy()).astype(np.float32).view(np.uint8))
        return out

    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    def test_all_scores_equal(self, tmp_path, backend):
        path = rewrite(path_of("tiny-f32"), tmp_path / "flat.gguf", tensors=self.routers(np.zeros_like))
        got = run(path, prompt("tiny-f32", 40), tmp_path / "dump", backend=backend)
        for layer in range(5):
            assert (got.arrays[layer, "ids"] == [0, 1, 2, 3]).all()
            assert (got.arrays[layer, "wts"] == 0.25).all()

    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    def test_equal_scores_at_the_edge(self, tmp_path, backend):
        """Experts 2 to 12 of 16 have the same router row, so their scores tie wherever they stand."""

        def change(rows):
            rows[3:13] = rows[2]
            return rows

        path = rewrite(path_of("tiny-f32"), tmp_path / "flat.gguf", tensors=self.routers(change))
        got = run(path, prompt("tiny-f32", 200), tmp_path / "dump", backend=backend)
        cut = 0
        for layer in range(5):
            ids, weights = got.arrays[layer, "ids"], got.arrays[layer, "wts"]
            assert (np.diff(weights, axis=1) <= 0).all()
            for row, share in zip(ids.tolist(), weights, strict=True):
                tied = [i for i in row if 2 <= i <= 12]
                assert tied == list(range(2, 2 + len(tied)))
                assert len({float(share[row.index(i)]) for i in tied}) <= 1
                cut += row[-1] in tied
        assert cut > 200


class TestNotANumber:
    """N3: a block scale that is NaN or infinite is named when the block is first used, not at the logits."""

    # model, tensor, expert (None: no expert's), row, block, byte of the scale in its block, bytes of a block
    PLACES: ClassVar = {
        "gate": ("small-iq2xs-q2_0", "blk.1.ffn_gate_exps.weight", 2, 7, 0, 0, 74),
        "up": ("small-iq4_nl", "blk.0.ffn_up_exps.weight", 0, 255, 7, 0, 18),
        "down": ("small-iq2xs-q2_0", "blk.2.ffn_down_exps.weight", 3, 0, 3, 0, 18),
        "minimum": ("small-q4_k", "blk.1.ffn_down_exps.weight", 1, 100, 0, 2, 144),
        "value": ("tiny-f16", "blk.3.ffn_down_exps.weight", 15, 63, 23, 0, 2),
        "resident": ("small-q8_0", "blk.1.attn_gate.weight", None, 9, 5, 0, 34),
        "head": ("small-q4_k", "output.weight", None, 511, 0, 0, 144),
        "table": ("small-q8_0", "per_layer_token_embd.weight", None, None, 0, 0, 34),
    }

    def broken(self, place, value, target):
        """The file with a half-precision `value` there, the bytes of the tensor before the block, and its row."""
        name, tensor_name, expert, row, block, at, block_bytes = self.PLACES[place]
        path = path_of(name)
        tensor = gguf_io.GGUF(str(path)).tensors[tensor_name]
        rows = tensor.shape[-2]
        row_bytes = tensor.raw.size // int(np.prod(tensor.shape[:-1]))
        if row is None:  # of the table: one that the first token asks for
            taps = {}
            engine = open_engine(path)
            engine.prefill(engine.session(), prompt(name, 40), "none", None, taps)
            row = int(taps["ple_rows"][0, 3])
        offset = ((expert or 0) * rows + row) * row_bytes + block * block_bytes
        raw = np.array(tensor.raw)
        raw[offset + at : offset + at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
        return rewrite(path, target, tensors={tensor_name: (tensor.type, raw)}), offset, row

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("place", PLACES)
    def test_it_is_named(self, place, value, tmp_path):
        name, tensor, expert, _, block, *_ = self.PLACES[place]
        path, offset, row = self.broken(place, value, tmp_path / "broken.gguf")
        where = f"'{tensor}', " + ("" if expert is None else f"expert {expert}, ") + f"row {row}, block {block} "
        g = gguf_io.GGUF(str(path))
        start = g.tensors[tensor].raw.ctypes.data - g.buf.ctypes.data
        for knobs in ({}, {"activations": "f32"}, {"prompt_chunk": 1, "arena_slots": 40}, {"backend": "reference"}):
            engine = open_engine(path, **knobs)
            session = engine.session()
            with pytest.raises(ModelFormatError, match=re.escape(where)) as caught:
                engine.prefill(session, prompt(name, 40), "all")
            assert np.isinf(value) or "is NaN" in str(caught.value)  # infinity times a code of 0 is NaN too
            assert caught.value.offset == start + offset
            assert 0 <= session.position < 40

    def test_rows_before_it_are_exact(self, tmp_path):
        """Token by token, all is as in the sound file until the expert is chosen."""
        name = "small-iq2xs-q2_0"
        path, *_ = self.broken("down", np.nan, tmp_path / "broken.gguf")
        ids = prompt(name, 120)
        sound = run(name, ids, tmp_path / "dump")
        first = int(np.argmax((sound.arrays[2, "ids"] == 3).any(1)))
        assert (sound.arrays[2, "ids"][first] == 3).any()
        engine = open_engine(path, prompt_chunk=1, prompt_sweep=1)
        session = engine.session()
        if first:
            logits, _ = engine.prefill(session, ids[:first], "all")
            assert logits.tobytes() == sound.logits[:first].tobytes()
        with pytest.raises(ModelFormatError, match="expert 3"):
            engine.prefill(session, ids[first:], "none")
        assert session.position == first

    def test_an_overflow_is_no_damage(self, tmp_path):
        """Sound weights whose product overflows: no tensor is blamed, ids stay in range, the layer is in the stats."""
        path = path_of("tiny-f32")
        tensors = gguf_io.GGUF(str(path)).tensors
        huge = {}
        for leaf in ("ffn_up_exps", "ffn_down_exps"):
            name = f"blk.1.{leaf}.weight"
            values = tensors[name].raw.view(np.float32) * np.float32(1e30)
            huge[name] = "F32", values.view(np.uint8)
        broken = rewrite(path, tmp_path / "huge.gguf", tensors=huge)
        got = run(broken, prompt("tiny-f32", 30), tmp_path / "dump", prompt_chunk=8)
        assert got.stats["not_finite_layer"] == 1
        assert not np.isfinite(got.logits).all()
        for layer in range(5):
            ids = got.arrays[layer, "ids"]
            assert ids.min() >= 0 and ids.max() < 16 and all(len(set(row)) == ids.shape[1] for row in ids.tolist())
        with pytest.raises(StrataError, match="overflowed"), strata.load(broken) as model:
            model.generate(prompt("tiny-f32", 30), max_new_tokens=2)
        assert run("tiny-f32", prompt("tiny-f32", 30), tmp_path / "dump").stats["not_finite_layer"] is None


def test_sessions_leave_nothing_behind():
    """C7: after one text another begins afresh, and a session that went on is not where it was."""
    a, b, c = np.split(prompt("tiny-f32", 96), 3)
    engine, other = open_engine("tiny-f32"), open_engine("tiny-f32")
    want, _ = other.prefill(other.session(), np.concatenate([a, c]), "all")
    session = engine.session()
    engine.prefill(session, np.concatenate([a, b]), "none")
    session.close()
    session = engine.session()
    assert session.position == 0
    engine.prefill(session, a, "none")
    assert engine.prefill(session, c, "all")[0].tobytes() == want[32:].tobytes()


def test_there_is_no_way_back():
    """C7: a position cannot be set: a recurrent state cannot be cut back, only computed anew in a new session."""
    with strata.load(path_of("tiny-f32")) as model:
        session = model.session()
        session.prefill([1, 2, 3])
        for owner in (session, session._core):
            with pytest.raises(AttributeError):
                owner.position = 1
        assert session.position == 3


class TestLongContext:
    """N4: positions up to 131072. Index arithmetic at the far end, and the numbers there."""

    CONTEXT = 131072

    @pytest.fixture
    def stretched(self, tmp_path):
        return rewrite(path_of("tiny-ties"), tmp_path / "long.gguf", {"qwen4exp.context_length": self.CONTEXT})

    def test_a_large_context_costs_nothing_until_used(self, stretched):
        engine = open_engine(stretched, context=self.CONTEXT)
        session = engine.session()
        ids = prompt("tiny-ties", 100)
        want = open_engine("tiny-ties")
        got = engine.prefill(session, ids, "all")[0]
        assert session.context == self.CONTEXT
        assert got.tobytes() == want.prefill(want.session(), ids, "all")[0].tobytes()

    @pytest.mark.long
    def test_the_last_positions(self, stretched):
        """The last layer of this model is its only attention layer, so the reference needs only the last queries."""
        rng = np.random.default_rng(11)
        ids = rng.integers(0, 490, self.CONTEXT).astype(np.int32)
        last = 8
        model = reference.Model(str(stretched), np.float64)
        state = model.state()
        whole = model.attention

        def caches_only(x, s, pos, i, taps):
            """Keys, values and indexer keys as attention() stores them; its output is not needed."""
            b, T = f"blk.{i}.", x.shape[0]
            k = model.rms(
                model.mm(x, b + "attn_k.weight").reshape(T, model.nkv, model.hd), model.t(b + "attn_k_norm.weight")
            )
            parts["ik"].append(model.mm(x, b + "indexer.k_proj.weight"))
            parts["k"].append(model.rope(k, pos[:, None]))
            parts["v"].append(model.mm(x, b + "attn_v.weight").reshape(T, model.nkv, model.hd))
            return np.zeros((T, model.H))

        parts = {"ik": [], "k": [], "v": []}
        model.attention = caches_only
        for start in range(0, self.CONTEXT - last, 1024):
            model.forward(ids[start : min(start + 1024, self.CONTEXT - last)], state, logits=False)
        for name, pieces in parts.items():
            state["layers"][1][name] = np.concatenate(pieces)
        model.attention, taps = whole, {}
        want = model.forward(ids[-last:], state, taps)

        engine, seen = open_engine(stretched, context=self.CONTEXT, prompt_chunk=1024), {}
        session = engine.session()
        engine.prefill(session, ids[:-last], "none")
        got, _ = engine.prefill(session, ids[-last:], "all", None, seen)
        assert session.position == self.CONTEXT and np.isfinite(got).all()
        for row, gap, chosen, have, logits in zip(
            want, taps["L1/qsa_gap"], taps["L1/qsa_blocks"], seen["L1/qsa_blocks"], got, strict=True
        ):
            assert gap > 1e-6
            assert have[1 : 1 + have[0]].tolist() == np.flatnonzero(chosen).tolist()
            assert np.abs(row - logits).max() <= 2e-4
        with pytest.raises(strata.InputError, match="131072"):
            engine.prefill(session, ids[:1])
