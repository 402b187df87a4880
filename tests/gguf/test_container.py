"""Good files: the reader gives what the strict reader of the oracle gives, whatever lawful form the file has."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import bad_files
import gguf_io
import numpy as np
import pytest
from strata._core import GgufFile
from strata.errors import ModelFormatError, StrataError

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
MODELS = sorted(p.name for p in DATA.glob("*.gguf"))
KIND = {"str": "string"}  # gguf_io's names of value kinds -> ours


def kind(name: str) -> str:
    head, _, of = name.partition(":")
    return f"array of {KIND.get(of, of)}" if head == "arr" else KIND.get(name, name)


def same(got: object, want: object) -> bool:
    """Equal values, NaN equal to NaN."""
    if isinstance(want, float) and isinstance(got, float):
        return got == want or (math.isnan(got) and math.isnan(want))
    if isinstance(want, list):
        got = got.tolist() if isinstance(got, np.ndarray) else got
        return len(got) == len(want) and all(map(same, got, want))
    return type(got) is type(want) and got == want


def assert_equal(got: GgufFile, want: gguf_io.GGUF) -> None:
    assert got.version == want.version
    assert got.keys() == list(want.kv)
    assert got.kinds == {k: kind(v) for k, v in want.kinds.items()}
    for key, value in want.kv.items():
        assert same(got.value(key), value), key
    start = want.buf.ctypes.data
    tensors = {t["name"]: t for t in got.tensors}
    assert len(tensors) == len(got.tensors) == len(want.tensors)
    for name, t in want.tensors.items():
        mine = tensors[name]
        assert (list(mine["ne"]), mine["type"], mine["file"]) == (list(t.ne), t.type, 0)
        assert (mine["offset"], mine["bytes"]) == (t.raw.ctypes.data - start, t.raw.nbytes)
        assert mine["type_id"] == gguf_io.TYPES[t.type][0]
    assert got.files == [(str(want.buf.filename), want.size)]
    assert got.overhead_bytes == want.size - sum(t.raw.nbytes for t in want.tensors.values())


@pytest.mark.parametrize("name", MODELS)
def test_good_files_parse_as_the_strict_reader_has_them(name: str) -> None:
    assert_equal(GgufFile(DATA / name), gguf_io.GGUF(DATA / name))


def test_every_kind_of_value(tmp_path: Path) -> None:
    """Extremes of each kind, alone and in arrays; empty arrays; text that is not UTF-8."""
    scalars = {
        "u8": [0, 255], "i8": [-128, 127], "u16": [0, 65535], "i16": [-32768, 32767], "u32": [0, 2**32 - 1],
        "i32": [-(2**31), 2**31 - 1], "u64": [0, 2**64 - 1], "i64": [-(2**63), 2**63 - 1], "bool": [False, True],
        "f32": [0.5, -math.inf, math.nan], "f64": [0.1, math.inf, math.nan], "str": ["", "é", b"\xff\xfe"],
    }  # fmt: skip
    kv = [(f"{k}.{i}", k, v) for k, values in scalars.items() for i, v in enumerate(values)]
    kv += [(f"{k}.array", f"arr:{k}", values) for k, values in scalars.items()]
    kv += [(f"{k}.none", f"arr:{k}", []) for k in scalars]
    path = tmp_path / "kinds.gguf"
    gguf_io.write_gguf(path, kv, [("t", (4,), "F32", np.zeros(16, np.uint8))])
    got = GgufFile(path)
    assert_equal(got, gguf_io.GGUF(path))
    assert got.value("u64.array").dtype == np.uint64
    assert got.value("bool.array").dtype == np.bool_
    assert got.value("str.2") == "\udcff\udcfe"
    with pytest.raises(KeyError):
        got.value("absent")


def test_version_2_is_version_3(tmp_path: Path) -> None:
    image = bad_files.Image()
    image.version = 2
    path = tmp_path / "v2.gguf"
    path.write_bytes(image.bytes())
    assert_equal(GgufFile(path), gguf_io.GGUF(path))


@pytest.mark.parametrize("alignment", [1, 8, 32, 4096])
def test_alignments(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "a.gguf"
    data = [np.arange(n, dtype=np.uint8) for n in (4, 100, 8)]
    kv = [("general.alignment", "u32", alignment)]
    gguf_io.write_gguf(path, kv, [(f"t{len(d)}", (len(d) // 4,), "F32", d) for d in data], alignment)
    got = GgufFile(path)
    assert got.alignment == alignment
    raw = path.read_bytes()
    for t, d in zip(got.tensors, data, strict=True):
        assert t["offset"] % alignment == 0
        assert raw[t["offset"] : t["offset"] + t["bytes"]] == d.tobytes()


def test_gaps_order_and_missing_padding_are_accepted(tmp_path: Path) -> None:
    image = bad_files.Image()
    image.t = [["b", [8], 0, 128, b""], ["a", [8], 0, 0, b""], ["numbers", [4], 26, 64, b""]]  # offsets as given
    path = tmp_path / "gaps.gguf"
    path.write_bytes(image.bytes() + bytes(128 + 32))
    got = GgufFile(path)
    assert [t["name"] for t in got.tensors] == ["b", "a", "numbers"]
    assert got.tensors[2]["type"] == "I32"
    assert got.overhead_bytes == path.stat().st_size - 32 - 32 - 16
    assert got.tensors[0]["offset"] + 32 == path.stat().st_size


def test_file_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    got = GgufFile(path)
    assert (got.tensors, got.keys(), got.overhead_bytes) == ([], [], 24)


def test_paths(tmp_path: Path) -> None:
    """Any path the system has: bytes, text, a name that is not UTF-8; folders and absent files are typed errors."""
    odd = os.path.join(os.fsencode(tmp_path), b"na\xffme.gguf")
    with open(odd, "wb") as f:
        f.write((DATA / "tiny-ties.gguf").read_bytes())
    for path in (odd, os.fsdecode(odd)):
        assert GgufFile(path).files[0][0] == os.fsdecode(odd)
    os.truncate(odd, 20000)
    with pytest.raises(ModelFormatError, match="needs 655040") as e:
        GgufFile(odd)
    assert e.value.file == os.fsdecode(odd)
    with pytest.raises(ModelFormatError, match="is a folder"):
        GgufFile(tmp_path)
    with pytest.raises(ModelFormatError, match="No such file"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(StrataError):
        GgufFile("/dev/null")
    with pytest.raises(TypeError):
        GgufFile(7)


def test_fifo_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "fifo.gguf"
    os.mkfifo(path)
    with pytest.raises(ModelFormatError, match="not a regular file"):
        GgufFile(path)
