"""dump-compare: one bit is found and named; files that cannot be compared are errors."""

import json

import numpy as np
import pytest
import strata
from strata import dump
from strata.ab import dumps
from strata.cli import main
from strata.errors import DumpFormatError

HEADER_BYTES = 64


def flip_bit(path, value_index, bit=0):
    """Changes one bit of one value of a dump file."""
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 4 * value_index + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_equal(two_dumps):
    result = dumps.compare(*two_dumps)
    assert result.equal and result.exit_code == 0 and result.files == 9
    assert result.values == 3 * (7 * 4 + 7 * 4 * 16 + 7 * 16)
    assert "every bit" in result.text()


def test_one_planted_bit_is_named(two_dumps):
    """Row 2, rank 3, column 5 of the experts' rows of layer 1."""
    a, b = two_dumps
    flip_bit(b / "L001.yr", (2 * 4 + 3) * 16 + 5)
    result = dumps.compare(a, b)
    first = result.first
    assert result.exit_code == 1 and result.different == 1
    assert (first.file, first.layer, first.row, first.column, first.ulp) == ("L001.yr", 1, 102, (3, 5), 1)
    assert first.a != first.b and int(first.a_bits, 16) ^ int(first.b_bits, 16) == 1
    assert result.by_layer == {0: 0, 1: 1, 2: 0}
    assert "L001.yr: layer 1, row 102, column 3, 5" in result.text()


def test_the_first_layer_counts_not_the_first_name(two_dumps):
    a, b = two_dumps
    flip_bit(b / "L002.ids", 0)
    flip_bit(b / "L001.yr", 9, bit=31)
    result = dumps.compare(a, b)
    assert result.first.file == "L001.yr" and result.different == 2 and result.by_layer == {0: 0, 1: 1, 2: 1}


def test_bits_count_not_values(tmp_path, write_dump):
    """0.0 and -0.0 differ by 0 ulp and one bit; the same NaN is equal; NaN against a number has no distance."""
    for name, values in (("a", [0.0, np.nan, np.nan]), ("b", [-0.0, np.nan, 1.0])):
        (tmp_path / name).mkdir()
        write_dump(tmp_path / name / "L000.out", np.array([values], np.float32), 0)
    result = dumps.compare(tmp_path / "a", tmp_path / "b")
    assert result.different == 2 and result.first.ulp == 0 and result.first.column == (0,)
    assert dumps.ulp_distance(np.float32(np.nan), np.float32(1)) is None


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (1.0, np.nextafter(np.float32(1), np.float32(2)), 1),
        (-1e-45, 1e-45, 2),  # the smallest denormals around zero
        (0.0, np.inf, 0x7F800000),
        (2.0, 4.0, 1 << 23),
    ],
)
def test_ulp_distance(a, b, distance):
    assert dumps.ulp_distance(np.float32(a), np.float32(b)) == distance
    assert dumps.ulp_distance(np.float32(b), np.float32(a)) == distance


def test_differences_past_the_first_block(two_dumps, monkeypatch):
    monkeypatch.setattr(dumps, "BLOCK_BYTES", 64)
    a, b = two_dumps
    flip_bit(b / "L000.yr", 400)
    flip_bit(b / "L000.yr", 401, bit=12)
    result = dumps.compare(a, b)
    assert result.different == 2 and result.first.column == tuple(np.unravel_index(400, (7, 4, 16)))[1:]


@pytest.mark.parametrize("damage", ["missing", "extra", "cut", "long", "shape", "dtype", "magic", "empty", "row"])
def test_what_cannot_be_compared_is_an_error(two_dumps, write_dump, damage):
    a, b = two_dumps
    path = b / "L001.out"
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "extra":
        (b / "L009.out").write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-4])
    elif damage == "long":
        path.write_bytes(data + b"1234")
    elif damage == "shape":
        write_dump(path, np.zeros((7, 15), np.float32), 1, first_row=100)
    elif damage == "dtype":
        write_dump(path, np.zeros((7, 16), np.int32), 1, first_row=100)
    elif damage == "row":
        write_dump(path, np.zeros((7, 16), np.float32), 1, first_row=99)
    elif damage == "magic":
        path.write_bytes(b"GGUF" + data[4:])
    else:
        path.write_bytes(b"")
    result = dumps.compare(a, b)
    assert result.exit_code == 2 and not result.equal
    assert any("L001.out" in e or "L009.out" in e for e in result.errors), result.errors


def test_folders_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    assert dumps.compare(tmp_path / "no", tmp_path / "empty").exit_code == 2
    assert dumps.compare(tmp_path / "empty", tmp_path / "empty").exit_code == 2


def test_header_that_lies_about_its_size(tmp_path, write_dump):
    path = tmp_path / "L000.out"
    write_dump(path, np.zeros((2, 3), np.float32), 0)
    data = bytearray(path.read_bytes())
    data[16:24] = (2**62).to_bytes(8, "little")  # rows; the product does not fit 64 bits
    path.write_bytes(data)
    with pytest.raises(DumpFormatError, match="bytes where"):
        dump.read(path)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    return caught.value.code, capsys.readouterr().out


def test_command(two_dumps, capsys):
    a, b = two_dumps
    assert run(capsys, "dump-compare", a, b)[0] == 0
    flip_bit(b / "L002.out", 17, bit=30)
    code, out = run(capsys, "dump-compare", a, b, "--json")
    data = json.loads(out)
    assert code == 1 and data["first"]["file"] == "L002.out" and data["first"]["row"] == 101
    (b / "L000.ids").unlink()
    assert run(capsys, "dump-compare", a, b)[0] == 2


def test_one_bit_in_one_expert_row_of_the_demo_model(tmp_path, capsys):
    """A dump of the engine itself; the bit lies in the row of one expert of one layer."""
    for folder in ("a", "b"):
        with strata.load(strata.demo_path(), dump_moe=str(tmp_path / folder)) as model:
            model.prefill("Once upon a time there was a girl named Lucy.")
    assert run(capsys, "dump-compare", tmp_path / "a", tmp_path / "b")[0] == 0
    path = tmp_path / "b" / "L005.yr"
    rows, experts, hidden = dump.read(path).shape
    flip_bit(path, (3 * experts + 2) * hidden + 77, bit=7)
    assert rows > 3 and experts == 4 and hidden == 256
    code, out = run(capsys, "dump-compare", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "L005.yr: layer 5, row 3, column 2, 77" in out and "128 ulp apart" in out
