"""Files that must be refused: the list of bad_files.py, truncations, flipped bytes.

Never a crash, a hang or a big allocation.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import bad_files
import pytest
from strata._core import GgufFile, model_info
from strata.errors import ModelFormatError

TESTS = Path(__file__).resolve().parent.parent
BASE = Path(bad_files.BASE)
CASES = {name: (data, why, level) for name, data, why, level in bad_files.cases()}

# What the message must name, where that is not in the case's own title.
NAMES = {
    "empty file": "empty",
    "only the magic": "4 bytes, needs at least 24",
    "23 bytes": "23 bytes, needs at least 24",
    "wrong magic": "begins with 'GGML",
    "byte-swapped version": "big-endian",
    "cut inside the metadata": "metadata entries.*200 bytes",
    "cut inside the tensor list": "ends inside a tensor name",
    "last data byte missing": "has 655039 bytes, needs 655040",
    "data section missing": "needs 655040: 63 of 63 tensors",
    "kv count 2^60": "claims 1152921504606846976 metadata entries",
    "tensor count 2^64-1": "claims 18446744073709551615 tensors",
    "array of arrays": "'x.y': arrays of arrays",
    "duplicate key": "'qwen4exp.block_count' is there twice",
    "no dimensions": "'output_hc_down.weight': 0 dimensions",
    "type 4 (retired)": "'token_embd.weight' has type 4, which was removed",
    "type 43": "'token_embd.weight' has type 43, which strata does not know",
    "two tensors at one offset": "'token_embd.weight' and 'per_layer_token_embd.weight' overlap",
    "another architecture": "is 'llama'.*file itself is intact",
    "rope scaling": "rope.scaling.type is 'yarn'",
    "attn_q transposed": r"'blk.1.attn_q.weight' has the shape \[256, 64\], expected is \[64, 256\]",
    "ssm_a of I32": "'blk.0.ssm_a' has the type I32",
}


def test_the_list_is_complete() -> None:
    assert len(CASES) == 147
    assert set(NAMES) <= {why for _, why, _ in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_bad_file(tmp_path: Path, name: str) -> None:
    data, why, level = CASES[name]
    path = tmp_path / name
    path.write_bytes(data)
    began = time.monotonic()
    if level == "model":
        GgufFile(path)
    with pytest.raises(ModelFormatError) as e:
        (GgufFile if level == "container" else model_info)(path)
    assert time.monotonic() - began < 2
    assert str(e.value).startswith(f"{path}: ")
    assert e.value.file == str(path)
    assert e.value.offset is None or 0 <= e.value.offset <= len(data)
    e.match(NAMES.get(why, ""))
    if why.endswith(" missing") and why not in NAMES:
        e.match(why.removesuffix(" missing").removeprefix("tensor ").split()[-1])


def test_no_memory_for_claims(tmp_path: Path) -> None:
    """All of them, and files whose claims a sparse file of 1 TB seems to back, in a process that may grow by 96 MB."""
    for name, (data, _, _) in CASES.items():
        (tmp_path / name).write_bytes(data)
    whole = BASE.read_bytes()
    huge = {
        "key": whole[:24] + (1 << 39).to_bytes(8, "little"),
        "keys": whole[:16] + (1 << 35).to_bytes(8, "little"),
        "tensors": whole[:8] + (1 << 34).to_bytes(8, "little") + (0).to_bytes(8, "little"),
    }
    for kind, item in itertools.product(("array", "string"), (0, 8, 10)):
        value = item.to_bytes(4, "little") + (1 << 36).to_bytes(8, "little")
        entry = (9).to_bytes(4, "little") + value if kind == "array" else (8).to_bytes(4, "little") + value[4:]
        one = (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
        huge[f"{kind}-{item}"] = whole[:8] + one + (3).to_bytes(8, "little") + b"x.y" + entry
    for name, data in huge.items():
        path = tmp_path / f"huge-{name}.gguf"
        path.write_bytes(data)
        os.truncate(path, 1 << 40)
    child = subprocess.run(
        [sys.executable, TESTS / "gguf" / "limits_child.py", tmp_path], capture_output=True, text=True, timeout=120
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.split()[0] == str(len(CASES) + len(huge))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(BASE.read_bytes())
    return path


def test_every_truncation_is_refused(copy: Path) -> None:
    """Every length up to 1500 bytes, every fifth of the rest of the header, and the borders of every tensor."""
    good = GgufFile(copy)
    data_start = min(t["offset"] for t in good.tensors)
    borders = {t["offset"] + d for t in good.tensors for d in (-1, 0, 1)}
    borders |= {t["offset"] + t["bytes"] - 1 for t in good.tensors}
    lengths = {*range(1500), *range(1500, data_start, 5), *borders}
    for n in sorted(lengths, reverse=True):
        os.truncate(copy, n)
        with pytest.raises(ModelFormatError):
            GgufFile(copy)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_never_crash(copy: Path, seed: int) -> None:
    """1000 files each with 1 to 3 changed bytes: read, or refused with the typed error."""
    rng = random.Random(seed)
    good = copy.read_bytes()
    directory = good.index(b"token_embd.weight") - 8
    data_start = min(t["offset"] for t in GgufFile(copy).tensors)
    regions = [(0, 2200), (directory, data_start), (0, data_start)]  # numbers are dense in the first two
    outcomes = {"read": 0, "refused": 0}
    with open(copy, "r+b", buffering=0) as f:
        for _ in range(1000):
            spots = [rng.randrange(*rng.choice(regions)) for _ in range(rng.randint(1, 3))]
            for at in spots:
                os.pwrite(f.fileno(), bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]), at)
            try:
                GgufFile(copy)
                model_info(copy)
                outcomes["read"] += 1
            except ModelFormatError as e:
                assert str(e)
                outcomes["refused"] += 1
            for at in spots:
                os.pwrite(f.fileno(), good[at : at + 1], at)
    assert copy.read_bytes() == good
    assert min(outcomes.values()) > 50  # both outcomes occur


def test_random_bytes_after_the_magic(tmp_path: Path) -> None:
    rng = random.Random(5)
    path = tmp_path / "noise.gguf"
    for n in range(300):
        path.write_bytes(b"GGUF\x03\0\0\0" + rng.randbytes(n) if n % 2 else rng.randbytes(n))
        with pytest.raises(ModelFormatError):
            GgufFile(path)
