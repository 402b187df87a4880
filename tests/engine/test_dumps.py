"""Dump files: their format and their reader, and what is in them against the taps and the weights."""

import struct

import gguf_io
import numpy as np
import pytest
import strata
from engine_cases import open_engine, path_of, prompt
from strata import DumpFormatError
from strata.dump import KINDS, open_dump, read

TAPS = {"mixed": "moe_in", "ids": "router_ids", "wts": "router_weights", "hh": "hh", "sgv": "sgv", "out": "moe_out"}
TAPS |= {"yr": "expert_rows", "R_post": "R_post", "inj": "inj"}


def dumped(name, ids, folder, taps=None, **knobs):
    engine = open_engine(name, dump_moe=str(folder), **knobs)
    engine.prefill(engine.session(), ids, "none", None, taps)
    return open_dump(folder)


@pytest.fixture
def dump(tmp_path):
    return dumped("tiny-f32", prompt("tiny-f32", 20), tmp_path / "d", prompt_chunk=7)


@pytest.mark.parametrize(("name", "sizes"), [("tiny-f32", (64, 4, 40, 4, 5)), ("small-q4_k", (256, 2, 64, 4, 3))])
@pytest.mark.parametrize("knobs", [{"prompt_chunk": 7}, {"prompt_chunk": 7, "prompt_sweep": 14}, {}])
def test_what_is_in_them(name, sizes, knobs, tmp_path):
    hidden, k, shared, streams, n_layer = sizes
    ids, taps = prompt(name, 50), {}
    dump = dumped(name, ids, tmp_path / "d", taps, **knobs)
    shapes = {"mixed": (50, hidden), "ids": (50, k), "wts": (50, k), "yr": (50, k, hidden), "hh": (50, shared)}
    shapes |= {"sgv": (50, 1), "out": (50, hidden), "R_post": (50, streams * hidden), "inj": (50, streams)}
    assert dump.rows == 50 and dump.first_row == 0 and dump.layers == list(range(n_layer))
    assert len(dump) == 7 * n_layer + 2 and len(list((tmp_path / "d").iterdir())) == len(dump)
    for (layer, kind), file in dump.items():
        assert file.layer == layer and file.kind == kind and file.complete
        assert file.shape == file.array.shape == shapes[kind] and file.dtype == file.array.dtype
        assert file.dtype == (np.int32 if kind == "ids" else np.float32)
        tap = taps[f"L{layer}/{TAPS[kind]}"]
        assert file.array.tobytes() == tap.tobytes(), f"L{layer}.{kind}"  # rows in token order, as taps have them
    assert dump.kinds(0) == list(KINDS[:7]) and dump.kinds(n_layer - 1) == list(KINDS)


@pytest.mark.parametrize("name", ["tiny-f32", "small-iq2xs-q2_0", "demo"])
def test_they_belong_together(name, tmp_path):
    """out = sgv * (W_down hh) + sum of wts * yr; weights fall and add up to 1; inj carries out into R_post."""
    ids, taps = prompt(name, 60), {}
    dump = dumped(name, ids, tmp_path / "d", taps)
    g = gguf_io.GGUF(str(path_of(name)))
    for layer in dump.layers:
        part = {kind: dump[layer, kind].array.astype(np.float64) for kind in dump.kinds(layer)}
        down = g.tensors[f"blk.{layer}.ffn_down_shexp.weight"].f32().astype(np.float64)
        out = part["sgv"] * (part["hh"] @ down.T) + (part["wts"][:, :, None] * part["yr"]).sum(1)
        assert np.abs(out - part["out"]).max() <= 1e-5 * np.abs(out).max(), f"layer {layer}"
        assert (np.diff(part["wts"]) <= 0).all() and np.abs(part["wts"].sum(1) - 1).max() < 1e-6
        assert all(len(set(row)) == len(row) for row in part["ids"].tolist())
    before = taps[f"L{layer}/res_mix"].reshape(60, part["inj"].shape[1], -1).astype(np.float64)
    after = before + part["inj"][:, :, None] * part["out"][:, None, :]
    assert np.abs(after.reshape(60, -1) - part["R_post"]).max() <= 1e-5 * np.abs(after).max()


def test_rows_of_a_session_that_goes_on(tmp_path):
    """A folder holds the last call; its rows are counted from the sequence's start."""
    ids = prompt("tiny-f32", 30)
    whole = {key: np.array(f.array) for key, f in dumped("tiny-f32", ids, tmp_path / "whole").items()}
    engine = open_engine("tiny-f32", dump_moe=str(tmp_path / "d"), prompt_chunk=4)
    session = engine.session()
    engine.prefill(session, ids[:13], "none")
    assert open_dump(tmp_path / "d").rows == 13
    engine.prefill(session, ids[13:], "none")
    dump = open_dump(tmp_path / "d")
    assert (dump.first_row, dump.rows) == (13, 17)
    assert all(file.array.tobytes() == whole[key][13:].tobytes() for key, file in dump.items())


def test_the_public_call_and_the_variable(tmp_path, monkeypatch):
    strata.prefill(path_of("tiny-f32"), [1, 2, 3], dump_moe=str(tmp_path / "a"))
    monkeypatch.setenv("DUMP_MOE", str(tmp_path / "b"))
    strata.prefill(path_of("tiny-f32"), [1, 2, 3])
    assert open_dump(tmp_path / "a").rows == open_dump(tmp_path / "b").rows == 3


def test_a_run_that_was_stopped(tmp_path):
    """Sweeps of 8 tokens, stopped in the third: 16 rows are complete."""
    ids = prompt("tiny-f32", 40)
    engine = open_engine("tiny-f32", dump_moe=str(tmp_path / "d"), prompt_chunk=4, prompt_sweep=8)

    def stop(state):
        if state["tokens_done"] == 16 and state["layer"] == 3:
            raise LookupError

    session = engine.session()
    with pytest.raises(LookupError):
        engine.prefill(session, ids, "none", stop)
    assert session.position == 16
    with pytest.raises(DumpFormatError, match="stopped"):
        open_dump(tmp_path / "d")
    dump = open_dump(tmp_path / "d", partial=True)
    assert dump.rows == 16 and not dump[0, "mixed"].complete
    whole = dumped("tiny-f32", ids, tmp_path / "whole")
    assert all(f.array.tobytes() == whole[key].array[:16].tobytes() for key, f in dump.items())


def test_header_by_hand(dump):
    """The bytes that docs/dumps.md describes."""
    raw = dump[4, "yr"].path.read_bytes()
    assert raw[:16] == b"STRDUMP1f32\0" + struct.pack("<I", 3)
    assert struct.unpack("<QQQ", raw[16:40]) == (20, 4, 64)
    assert struct.unpack("<iIQQ", raw[40:64]) == (4, 0, 0, 0)
    assert len(raw) == 64 + 20 * 4 * 64 * 4
    value = np.frombuffer(raw[64:], "<f4").reshape(20, 4, 64)[11, 2, 33]
    assert value == dump[4, "yr"].array[11, 2, 33]


def put(at, data):
    return lambda raw: raw[:at] + data + raw[at + len(data) :]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw[:40], "40 bytes, the header alone has 64"),
        (lambda raw: b"", "0 bytes"),
        (lambda raw: raw[:-1], "20 rows of 16 bytes need 384"),
        (lambda raw: raw + b"\0", "stopped"),
        (put(0, b"STRDUMP2"), "begins with b'STRDUMP2'"),
        (put(8, b"f64\0"), "type b'f64"),
        (put(12, struct.pack("<I", 1)), "1 dimensions"),
        (put(12, struct.pack("<I", 3)), "3 dimensions"),
        (put(16, struct.pack("<Q", 21)), "21 rows"),
        (put(16, struct.pack("<Q", 2**63)), "9223372036854775808 rows"),
        (put(24, struct.pack("<Q", 0)), "of 20, 0, 0"),
        (put(24, struct.pack("<Q", 5)), "rows of 20 bytes"),
        (put(32, struct.pack("<Q", 2)), "dimensions"),
        (put(40, struct.pack("<i", 1)), "layer 1"),
        (put(44, b"\1"), "header"),
        (put(56, b"\1"), "header"),
    ],
)
def test_damaged(dump, change, says):
    path = dump[0, "ids"].path
    path.write_bytes(change(path.read_bytes()))
    for call in (lambda: read(path), lambda: open_dump(path.parent)):
        with pytest.raises(DumpFormatError, match=says) as caught:
            call()
        assert caught.value.file == str(path) and isinstance(caught.value, strata.StrataError)


def test_folders(dump, tmp_path):
    folder = dump.folder
    with pytest.raises(DumpFormatError, match="no dump"):
        open_dump(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_dump(tmp_path / "nothing")
    for name in ("L000.nothing", "ids", "L0.ids"):
        with pytest.raises(DumpFormatError, match=r"L000\.KIND"):
            read(folder / name)
    other = dumped("tiny-f32", prompt("tiny-f32", 5), tmp_path / "other")
    (folder / "L004.inj").write_bytes(other[4, "inj"].path.read_bytes())
    with pytest.raises(DumpFormatError, match="two runs"):
        open_dump(folder)


def test_arrays_are_read_only(dump):
    with pytest.raises(ValueError, match="read-only"):
        dump[0, "mixed"].array[0, 0] = 1


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(strata.StreamIOError, match="file"):
        strata.prefill(path_of("tiny-f32"), [1, 2], dump_moe=str(tmp_path / "file" / "d"))
