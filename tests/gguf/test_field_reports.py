"""What went wrong in other readers (container level): each row is a file that must be refused, and why."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import bad_files
import pytest
from strata._core import GgufFile
from strata.errors import ModelFormatError

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
BASE = Path(bad_files.BASE)


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes, str], ModelFormatError]:
    def check(data: bytes, text: str) -> ModelFormatError:
        path = tmp_path / "m.gguf"
        path.write_bytes(data)
        with pytest.raises(ModelFormatError, match=text) as e:
            GgufFile(path)
        assert e.value.file == str(path)
        return e.value

    return check


def image_with(i: int, **fields: object) -> bytes:
    """tiny-ties with fields of tensor number i changed."""
    image = bad_files.Image()
    for field, value in fields.items():
        image.t[i][("name", "ne", "type", "offset", "data").index(field)] = value
    return image.bytes()


@pytest.mark.parametrize(
    "ne", [[1152, 2**42 + 1], [64, 2**63], [2**63], [2**62, 3], [1152, 2**54 + 1, 16], [2**64 - 1]]
)
def test_size_arithmetic_that_wraps(refused: Callable, ne: list[int]) -> None:
    """L1: dims whose product, or whose bytes, leave 64 bits. The message has the tensor and its dims."""
    text = (
        r"'blk.0.ffn_down_exps.weight', dimensions \[" + ", ".join(map(str, ne)) + r"\]: more than 2\^63|the file has"
    )
    i = next(i for i, t in enumerate(bad_files.Image().t) if t[0] == "blk.0.ffn_down_exps.weight")
    for type_id in (0, 8):
        if type_id == 0 or ne[0] % 32 == 0:
            refused(image_with(i, ne=ne, type=type_id), text)


@pytest.mark.parametrize("n", [0, 5, 9, 1_000_000, 0xFFFFFFFF])
def test_number_of_dimensions(refused: Callable, n: int) -> None:
    """L2: checked in every build, before the dims are read."""
    data = bytearray(BASE.read_bytes())
    name = b"blk.0.ssm_norm.weight"
    struct.pack_into("<I", data, data.index(name) + len(name), n)
    e = refused(bytes(data), f"'blk.0.ssm_norm.weight': {n} dimensions, must be 1 to 4")
    assert e.offset == data.index(name) - 8


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("u32", 0, "is 0, must be a power of two"),
        ("u32", 3, "is 3, must be a power of two"),
        ("u32", 2**31, "is 2147483648, must be a power of two up to 16777216"),
        ("u32", 2**32 - 1, "is 4294967295, must be a power of two"),
        ("u64", 32, "is of kind u64, must be u32"),
        ("str", "32", "is of kind string, must be u32"),
        ("arr:u32", [32], "is of kind array, must be u32"),
    ],
)
def test_alignment(refused: Callable, kind: str, value: object, text: str) -> None:
    """L4: a crafted alignment must not move the data section."""
    image = bad_files.Image()
    image.kv.append(["general.alignment", kind, value])
    refused(image.bytes(), f"general.alignment {text}")


def test_alignment_twice(refused: Callable) -> None:
    image = bad_files.Image()
    image.kv += [["general.alignment", "u32", 32], ["general.alignment", "u32", 64]]
    refused(image.bytes(), "'general.alignment' is there twice")


def test_large_alignment_beyond_the_file(refused: Callable) -> None:
    image = bad_files.Image()
    image.kv.append(["general.alignment", "u32", 1 << 24])
    image.t = [["t", [4], 0, 0, bytes(16)]]
    refused(image.bytes(), "the file has .* bytes, needs 16777232")


def small(entry: bytes, tensors: bytes = b"", n_tensors: int = 0) -> bytes:
    """A file of one metadata entry (or none) and tensor entries."""
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, bool(entry)) + entry + tensors


def text(b: bytes) -> bytes:
    return struct.pack("<Q", len(b)) + b


def tensor(type_id: int) -> bytes:
    return text(b"t") + struct.pack("<IQIQ", 1, 256, type_id, 0) + bytes(64)


REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)
UNKNOWN = (43, 1 << 31, 2**32 - 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((small(b"", tensor(t), 1), f"'t' has type {t}, which was removed") for t in REMOVED),
        *((small(b"", tensor(t), 1), f"'t' has type {t} .*activations") for t in (9, 15)),
        *(
            (small(b"", tensor(t), 1), f"'t' has type {t}, which strata does not know")
            for t in (43, 1 << 31, 2**32 - 1)
        ),
        (small(text(b"") + struct.pack("<II", 4, 0)), "key is empty"),
        (small(text(b"k") + struct.pack("<IQ", 8, 1 << 40) + bytes(9)), "ends inside a metadata string"),
        (small(text(b"k") + struct.pack("<IIQ", 9, 9, 1) + bytes(12)), "'k': arrays of arrays"),
        (small(text(b"k") + struct.pack("<IIQ", 9, 0, 10) + bytes(9)), "claims 10 entries in the array 'k'"),
        (
            small(text(b"k") + struct.pack("<IIQ", 9, 12, (1 << 61) + 1) + bytes(9)),
            "claims 2305843009213693953",
        ),
        (small(text(b"k") + struct.pack("<IIQ", 9, 8, 3) + bytes(23)), "claims 3 entries in the array 'k'"),
    ],
)
def test_small_files(refused: Callable, data: bytes, message: str) -> None:
    """L5: unknown types, empty keys, strings and arrays longer than the file, each in fewer than 200 bytes."""
    assert len(data) < 200
    e = refused(data, message)
    assert e.offset is not None
    assert 24 <= e.offset <= len(data)


@pytest.mark.parametrize("name", ["tiny-ties", "small-iq2xs-q2_0"])
def test_data_past_the_end(refused: Callable, name: str) -> None:
    """L6: every tensor's end is compared with the file, the streamed ones' too."""
    path = DATA / f"{name}.gguf"
    data = path.read_bytes()
    tensors = GgufFile(path).tensors
    end = max(t["offset"] + t["bytes"] for t in tensors)
    refused(data[: end - 1], f"the file has {end - 1} bytes, needs {end}: 1 of {len(tensors)} tensors")
    expert = max((t for t in tensors if "_exps" in t["name"]), key=lambda t: t["offset"])
    cut = expert["offset"] + expert["bytes"] - expert["bytes"] // expert["ne"][2] // 2
    later = sum(t["offset"] + t["bytes"] > cut for t in tensors)
    refused(data[:cut], f"the file has {cut} bytes, needs {end}: {later} of .* the first is '{expert['name']}'")


@pytest.mark.parametrize(
    ("data", "guess"),
    [
        (b"<!DOCTYPE html>\n<html><head><title>404</title>", "looks like HTML"),
        (b"\n\n <html lang=en>", "looks like HTML"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code>", "looks like XML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9511\n", "looks like a Git LFS pointer"),
        (b'{"error": "not found"}', "looks like JSON"),
        (b"PK\x03\x04" + bytes(60), "looks like a zip archive"),
        (b"\x1f\x8b\x08" + bytes(60), "looks like gzip"),
        (struct.pack("<Q", 900) + b'{"__metadata__":{}', "looks like a safetensors file"),
        (b"lmgg" + bytes(60), "looks like GGML"),
        (bytes(4096), "begins with zeros, like an unfinished download"),
        (b"Access denied", "begins with 'Access denied'"),
        (b"\x1b[31mred", r"begins with '\\x1b\[31mred'"),
        (b"GG", "2 bytes, needs at least 24"),
    ],
)
def test_what_a_wrong_file_looks_like(refused: Callable, data: bytes, guess: str) -> None:
    """L7: a web page under the model's name is called that; no byte of it reaches the terminal as it is."""
    e = refused(data, guess)
    assert str(e).isprintable()


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.9])
def test_head_of_a_file(refused: Callable, share: float) -> None:
    """L7: the head of a big file."""
    data = (DATA / "small-q8_0.gguf").read_bytes()
    n = int(len(data) * share)
    refused(data[:n], f"the file has {n} bytes" + (f", needs {len(data)}" if share > 0.1 else ""))


@pytest.mark.parametrize(("type_id", "block"), [(12, 256), (17, 256), (35, 256), (41, 128)])
def test_rows_of_640_in_types_they_do_not_fit(refused: Callable, type_id: int, block: int) -> None:
    """Q1: expert rows of 640 values are no whole number of blocks of 256."""
    row = 640 if block == 256 else 672
    entry = text(b"blk.0.ffn_down_exps.weight") + struct.pack("<I3QIQ", 3, row, 2560, 512, type_id, 0)
    refused(
        small(b"", entry, 1),
        rf"'blk.0.ffn_down_exps.weight', dimensions \[{row}, 2560, 512\]: a row of {row} .*{block}",
    )


@pytest.mark.parametrize(
    ("type_id", "row_bytes"), [(42, 180), (8, 680), (20, 360), (39, 340), (40, 360), (41, 90), (1, 1280)]
)
def test_rows_of_640_in_types_they_fit(tmp_path: Path, type_id: int, row_bytes: int) -> None:
    """Q1: row bytes follow from type and row length."""
    image = bad_files.Image()
    image.t = [["blk.0.ffn_down_exps.weight", [640, 4, 2], type_id, 0, bytes(row_bytes * 8)]]
    path = tmp_path / "m.gguf"
    path.write_bytes(image.bytes())
    assert GgufFile(path).tensors[0]["bytes"] == row_bytes * 8


def test_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    """The size when it was opened is what counts for the checks; the header is kept, so nothing is read twice."""
    path = tmp_path / "m.gguf"
    path.write_bytes(BASE.read_bytes())
    opened = GgufFile(path)
    os.truncate(path, 100)
    assert opened.files[0][1] == 655040
    assert len(opened.value("tokenizer.ggml.tokens")) == 512
