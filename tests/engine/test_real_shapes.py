"""The published model's own sizes: heads of 128 and 256, hidden 2560, width 640, 48 value heads, rows of 160.

The file of 250 to 350 MB and its goldens are made when the test runs.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engine_cases import block_table, open_engine, run
from strata import _core

SCRIPT = Path(__file__).resolve().parent.parent / "oracle" / "real_shapes.py"
SKIP = ("router_gap", "qsa_gap")


@pytest.fixture(scope="module", params=["seed", "q8"])
def made(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("real") / f"{request.param}.gguf"
    subprocess.run([sys.executable, SCRIPT, path, "--mix", request.param, "--f64"], check=True, stdout=subprocess.PIPE)
    with np.load(path.with_suffix(".npz")) as golden:
        yield path, dict(golden)
    path.unlink()


@pytest.mark.long
class TestRealShapes:
    @pytest.mark.parametrize("isa", _core.cpu_isas())
    def test_goldens(self, made, isa):
        path, golden = made
        assert min(golden[k].min() for k in golden if k.endswith(SKIP)) > 1e-6  # no choice is ambiguous
        taps = {}
        engine = open_engine(path, isa=isa)
        logits, _ = engine.prefill(engine.session(), golden["ids"].astype(np.int32), "all", None, taps)
        compared = 0
        for key, want in golden.items():
            if key in ("ids", "logits") or key.endswith((*SKIP, "/S")):
                continue
            have = taps[key]
            if key.endswith("qsa_blocks"):
                have = block_table(have, len(want))
            if want.dtype.kind in "ib":
                assert (have == want).all(), key
            else:
                assert np.abs(have - want).max() <= 1e-4 * max(1, np.abs(want).max()), key
            compared += 1
        assert compared > 20
        assert np.abs(logits - golden["logits"]).max() <= 2e-4

    def test_state(self, made):
        path, golden = made
        engine = open_engine(path)
        session = engine.session()
        engine.prefill(session, golden["ids"].astype(np.int32), "none")
        for layer in (0, 1):
            want = golden[f"L{layer}/S"]
            have = session.state(f"L{layer}.S").reshape(want.shape)
            assert np.abs(have - want).max() <= 1e-4 * max(1, np.abs(want).max())

    def test_exact(self, made, tmp_path):
        path, golden = made
        ids = golden["ids"].astype(np.int32)
        whole = run(path, ids, tmp_path / "dump", threads=1)
        cuts = [(1, 10, 2), (5, 11, 7), (7, 48, 1), (64, 10, 2)]
        for isa in _core.cpu_isas():
            for chunk, slots, threads in cuts if isa != "portable" else cuts[2:3]:
                knobs = dict(isa=isa, prompt_chunk=chunk, arena_slots=slots, threads=threads)
                assert run(path, ids, tmp_path / "dump", **knobs).differs(whole) == "", knobs
