"""Split sets: read as the whole file, or refused with what is missing or does not belong."""

from __future__ import annotations

import shutil
from pathlib import Path

import bad_files
import gguf_io
import pytest
from strata._core import GgufFile
from strata.errors import ModelFormatError

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
TIES = DATA / "tiny-ties.gguf"


def parts_of(model: Path, folder: Path, n: int) -> list[Path]:
    gguf_io.split_gguf(model, n, folder / model.stem)
    return [folder / f"{model.stem}-{i + 1:05d}-of-{n:05d}.gguf" for i in range(n)]


def edit(path: Path, key: str, value: int, kind: str = "u16") -> None:
    """Sets a split key of a part."""
    image = bad_files.Image(path)
    next(e for e in image.kv if e[0] == key)[1:] = [kind, value]
    path.write_bytes(image.bytes())


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return parts_of(TIES, tmp_path, 3)


def refused(path: Path, text: str) -> ModelFormatError:
    with pytest.raises(ModelFormatError, match=text) as e:
        GgufFile(path)
    return e.value


@pytest.mark.parametrize("name", ["tiny-ties", "small-iq2xs-q2_0"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_set_reads_as_the_whole_file(tmp_path: Path, name: str, n: int) -> None:
    model = DATA / f"{name}.gguf"
    parts = parts_of(model, tmp_path, n)
    whole, split = GgufFile(model), GgufFile(parts[0])
    assert split.keys()[: len(whole.keys())] == whole.keys()
    assert split.files == [(str(p), p.stat().st_size) for p in parts]
    assert len(split.tensors) == len(whole.tensors)
    data = model.read_bytes()
    for a, b in zip(whole.tensors, split.tensors, strict=True):
        assert all(a[k] == b[k] for k in ("name", "ne", "type", "bytes"))
        mine = parts[b["file"]].read_bytes()[b["offset"] :][: b["bytes"]]
        assert mine == data[a["offset"] :][: a["bytes"]]
    assert split.overhead_bytes == sum(size for _, size in split.files) - sum(t["bytes"] for t in split.tensors)


def test_a_part_may_hold_no_tensors(tmp_path: Path) -> None:
    first, second = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    g = gguf_io.GGUF(TIES)
    tensors = [(t.name, t.shape, t.type, t.raw) for t in g.tensors.values()]
    kv = [(k, g.kinds[k], v) for k, v in g.kv.items()]
    for path, i, meta, held in ((first, 0, kv, []), (second, 1, [], tensors)):
        keys = [("split.no", "i64", i), ("split.count", "u8", 2), ("split.tensors.count", "u64", len(tensors))]
        gguf_io.write_gguf(path, meta + keys, held)
    assert [t["name"] for t in GgufFile(first).tensors] == list(g.tensors)


def test_missing_parts_are_listed(parts: list[Path]) -> None:
    """L9: found and expected, the numbers that are missing, and how much the others hold."""
    parts[1].unlink()
    refused(
        parts[0], r"found 2 of 3 parts, missing number 2 \('tiny-ties-00002-of-00003.gguf'\).*hold 42 of 63 tensors"
    )
    parts[2].unlink()
    refused(parts[0], r"found 1 of 3 parts, missing number 2, 3 .*hold 21 of 63 tensors")


def test_opened_through_another_part(parts: list[Path]) -> None:
    """L9: the error names the first."""
    refused(parts[1], f"part 2 of 3 .*open the first part, {parts[0]}")
    renamed = parts[1].rename(parts[1].with_name("renamed.gguf"))
    refused(renamed, "part 2 of 3 .*open the first part, whose name ends in -00001-of")


def test_part_of_another_model(parts: list[Path], tmp_path: Path) -> None:
    """L9: parts of two different sets are refused."""
    other = tmp_path / "other"
    other.mkdir()
    strange = parts_of(DATA / "tiny-f16.gguf", other, 3)
    shutil.copy(strange[2], parts[2])
    e = refused(parts[0], "belongs to another set than .*it says 139 tensors in all, the first says 63")
    assert e.file == str(parts[2])
    shutil.copy(parts_of(TIES, other, 4)[2], parts[2])
    refused(parts[0], "belongs to another set than .*it says 4 parts, the first says 3")
    shutil.copy(TIES, parts[2])
    refused(parts[0], "belongs to another set than .*it has no split keys")


def test_metadata_of_another_model_in_a_part(parts: list[Path]) -> None:
    image = bad_files.Image(parts[2])
    image.kv.append(["general.name", "str", "something else"])
    parts[2].write_bytes(image.bytes())
    refused(
        parts[0], "belongs to another set.*general.name is 'something else', the first part's is 'oracle-tiny-ties'"
    )


def test_parts_swapped_or_doubled(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    refused(parts[0], "its name says part 3, its key split.no says part 2")
    edit(parts[2], "split.no", 2)
    refused(parts[0], "is also in .*00002-of-00003.gguf")


def test_tensor_count(parts: list[Path]) -> None:
    image = bad_files.Image(parts[2])
    del image.t[-1]
    parts[2].write_bytes(image.bytes())
    refused(parts[0], "the parts hold 62 tensors, split.tensors.count is 63")


def test_names_and_keys_disagree(parts: list[Path]) -> None:
    for name in ("first.gguf", "m-00001-of-00004.gguf", "m-00002-of-00003.gguf", "m-1-of-3.gguf"):
        copy = parts[0].with_name(name)
        shutil.copy(parts[0], copy)
        refused(copy, "keep the original names")


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("split.count", 0, "u16", "split.count is 0, must be 1 to 1000"),
        ("split.count", 1001, "u16", "split.count is 1001, must be 1 to 1000"),
        ("split.count", 2**64 - 1, "u64", "split.count is 18446744073709551615, must be"),
        ("split.count", -1, "i32", "split.count is negative: -1"),
        ("split.count", "3", "str", "split.count is of kind string, must be an integer"),
        ("split.count", True, "bool", "split.count is of kind bool, must be an integer"),
        ("split.no", 3, "u16", "split.no is 3, but the set has 3 parts"),
        ("split.tensors.count", 64, "i32", "it says 63 tensors in all, the first says 64"),
    ],
)
def test_split_keys(parts: list[Path], key: str, value: object, kind: str, text: str) -> None:
    edit(parts[0], key, value, kind)
    refused(parts[0], text)


@pytest.mark.parametrize("key", ["split.no", "split.count"])
def test_split_key_missing(parts: list[Path], key: str) -> None:
    image = bad_files.Image(parts[0])
    image.kv = [e for e in image.kv if e[0] != key]
    parts[0].write_bytes(image.bytes())
    refused(parts[0], f"{key} is missing")


def test_damage_in_a_later_part_names_it(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    e = refused(parts[0], "the file has .* bytes, needs")
    assert e.file == str(parts[2])
