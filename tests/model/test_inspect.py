"""strata.inspect: sums, rendering, JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import bad_files
import gguf_io
import pytest
from rich.console import Console
from strata import inspect
from strata.errors import ModelFormatError

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
MODELS = sorted(p.name for p in DATA.glob("*.gguf"))


def shown(info: inspect.ModelInfo, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(inspect.render(info))
    return out.getvalue()


@pytest.mark.parametrize("name", MODELS)
def test_sums(name: str) -> None:
    info = inspect.inspect(DATA / name)
    size = (DATA / name).stat().st_size
    assert info.total_bytes == size
    assert sum(info.bytes_by_placement.values()) + info.overhead_bytes == size
    assert sum(info.bytes_by_type.values()) + info.overhead_bytes == size
    assert info.bytes_by_placement["streamed"] == sum(info.expert_bytes) * info.hparams["n_expert"]
    assert "unused" not in info.bytes_by_placement


def test_sums_of_a_split_set(tmp_path: Path) -> None:
    gguf_io.split_gguf(DATA / "small-q4_k.gguf", 3, tmp_path / "m")
    info = inspect.inspect(tmp_path / "m-00001-of-00003.gguf")
    assert len(info.files) == 3
    assert info.total_bytes == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert sum(t.bytes for t in info.tensors) + info.overhead_bytes == info.total_bytes
    assert "files" in shown(info)
    assert "m-00003-of-00003.gguf" in shown(info)


def test_json() -> None:
    info = inspect.inspect(DATA / "tiny-f32.gguf")
    got = json.loads(inspect.to_json(info))
    assert got["architecture"] == "qwen4exp"
    assert got["hparams"]["n_layer"] == 5
    assert got["total_bytes"] == sum(f["bytes"] for f in got["files"])
    assert sum(got["bytes_by_placement"].values()) + got["overhead_bytes"] == got["total_bytes"]
    assert [t["name"] for t in got["tensors"]] == [t.name for t in info.tensors]
    assert {t["placement"] for t in got["tensors"]} == {"resident", "streamed", "by row"}


def test_rendering() -> None:
    text = shown(inspect.inspect(DATA / "tiny-f32.gguf"))
    facts = ("attention layers", "2, 4", "blk.*.ffn_gate_exps.weight", "64 x 24 x 16", "streamed", "3-grams on layer 1")
    assert [f for f in facts if f not in text] == []
    assert "Note:" not in text


def test_rendering_of_hostile_names_and_warnings(tmp_path: Path) -> None:
    """No control character of a file reaches the terminal, and no markup of it is obeyed."""
    image = bad_files.Image()
    image.t.append(["\x1b[2J[bold]x", [4], 0, None, bytes(16)])
    image.set("attention.compress_ratios", [0, 0])
    path = tmp_path / "m.gguf"
    path.write_bytes(image.bytes())
    info = inspect.inspect(path)
    assert info.tensors[-1].placement == "unused"
    text = shown(info, 200)
    assert "\x1b" not in text
    assert "[bold]x" in text
    assert "qsa_ratio" in text
    assert inspect.inspect(path, qsa_ratio=4).hparams["ratio"] == [0, 4]


def test_bad_file() -> None:
    with pytest.raises(ModelFormatError):
        inspect.inspect(DATA / "prompts.json")


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (55_400_000, "55.4 MB"),
        (34_600_000_000, "34.6 GB"),
        (10**13, "10,000 GB"),
    ],
)
def test_size_text(n: int, text: str) -> None:
    assert inspect.size_text(n) == text
