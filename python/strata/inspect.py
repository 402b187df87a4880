"""What is in a model file: architecture, sizes, tensors, and where each is kept. Reads headers only."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strata import _core

PLACEMENTS = ("resident", "streamed", "by row", "unused")

# Hyper-parameters in the order of printing: (names in `ModelInfo.hparams`, label).
_SIZES = (
    (("n_layer",), "layers"),
    (("hidden",), "hidden size"),
    (("n_vocab",), "vocabulary"),
    (("context_length",), "trained context, tokens"),
    (("n_head", "n_head_kv", "head_dim"), "attention: query heads, KV heads, head size"),
    (("index_heads", "index_dim", "index_budget"), "sparse attention: indexer heads, head size, budget in tokens"),
    (("n_key_head", "n_value_head", "state_dim"), "delta-net: key heads, value heads, head size"),
    (("n_expert", "n_expert_used", "expert_width"), "experts: number, used per token, width"),
    (("shared_width",), "shared expert: width"),
    (("n_stream", "mix_rank"), "residual streams, rank of their mixing"),
)


@dataclass(frozen=True)
class TensorInfo:
    """One tensor. `ne` in file order, ne[0] contiguous; `offset` in bytes from the start of file number `file`."""

    name: str
    ne: tuple[int, ...]
    type: str
    placement: str  # one of PLACEMENTS
    file: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class ModelInfo:
    """A model file or split set. Sizes in bytes; those of the tensors and `overhead_bytes` add up to `total_bytes`."""

    architecture: str
    version: int  # of the container
    files: tuple[tuple[str, int], ...]  # path, bytes
    hparams: dict[str, Any]
    tensors: tuple[TensorInfo, ...]
    expert_bytes: tuple[int, ...]  # of one routed expert, per layer
    tied_output: bool
    overhead_bytes: int  # headers and padding
    warnings: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(size for _, size in self.files)

    @property
    def bytes_by_placement(self) -> dict[str, int]:
        """Placements that occur, in the order of PLACEMENTS."""
        sums = _sums((t.placement, t.bytes) for t in self.tensors)
        return {p: sums[p] for p in PLACEMENTS if p in sums}

    @property
    def bytes_by_type(self) -> dict[str, int]:
        """Tensor types, the largest sum first."""
        return dict(
            sorted(_sums((t.type, t.bytes) for t in self.tensors).items(), key=lambda item: (-item[1], item[0]))
        )


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: defaultdict[str, int] = defaultdict(int)
    for key, size in pairs:
        sums[key] += size
    return dict(sums)


def inspect(path: str | os.PathLike[str], qsa_ratio: int = 0) -> ModelInfo:
    """Reads and checks the header of a model file (of a split set: its first file).

    qsa_ratio as the knob of that name. Raises ModelFormatError, ConfigError.
    """
    info = _core.model_info(path, qsa_ratio)
    return ModelInfo(
        architecture=info["architecture"],
        version=info["version"],
        files=tuple(info["files"]),
        hparams=info["hparams"],
        tensors=tuple(
            TensorInfo(t["name"], t["ne"], t["type"], t["placement"], t["file"], t["offset"], t["bytes"])
            for t in info["tensors"]
        ),
        expert_bytes=tuple(info["expert_bytes"]),
        tied_output=info["tied_output"],
        overhead_bytes=info["overhead_bytes"],
        warnings=tuple(info["warnings"]),
    )


def to_json(info: ModelInfo) -> str:
    """One JSON object: the fields of ModelInfo, and its sums."""
    fields = dataclasses.asdict(info)
    fields["files"] = [{"path": path, "bytes": size} for path, size in info.files]
    fields |= {
        "total_bytes": info.total_bytes,
        "bytes_by_placement": info.bytes_by_placement,
        "bytes_by_type": info.bytes_by_type,
    }
    return json.dumps(fields, indent=1)


def size_text(n: int) -> str:
    """Bytes in decimal units, as drives and downloads are sold: 34.6 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n < 1000 * size else f"{n / size:,.0f} {unit}"
    return f"{n} B"


def _shown(text: str) -> Text:
    """Names come from files: no control character of theirs, nor a byte that is not UTF-8, reaches the terminal."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text), overflow="fold")


def _runs(numbers: Iterable[int]) -> str:
    """Rising numbers in short: 0-2, 4-6."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def _ngram_text(ple: dict[str, Any] | None) -> str:
    if ple is None:
        return "none"
    return f"{ple['ngram']}-grams on layer {ple['layer']}, {sum(ple['head_rows']):,} rows of {ple['row_width']}"


def _facts(info: ModelInfo) -> Table:
    h = info.hparams
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    names = [_shown(f"{path} ({size_text(size)})") for path, size in info.files]
    table.add_row("files" if len(names) > 1 else "file", Group(*names))
    table.add_row("architecture", Text(f"{info.architecture}, GGUF {info.version}"))
    for keys, label in _SIZES:
        table.add_row(label, ", ".join(f"{h[k]:,}" for k in keys))
    attention = [i for i, recurrent in enumerate(h["recurrent"]) if not recurrent]
    table.add_row("attention layers", _runs(attention))
    table.add_row("their block ratio (0: dense)", ", ".join(sorted({str(h["ratio"][i]) for i in attention}, key=int)))
    table.add_row("n-gram embedding", _ngram_text(h["ple"]))
    low, high = min(info.expert_bytes), max(info.expert_bytes)
    table.add_row("one expert", size_text(low) if low == high else f"{size_text(low)} to {size_text(high)}, by layer")
    table.add_row("output matrix", "that of the embedding" if info.tied_output else "separate")
    if h["n_draft_block"]:
        table.add_row("draft-head blocks", f"{h['n_draft_block']} (not used)")
    return table


def _sizes(title: str, sizes: dict[str, int], total: int) -> Table:
    table = Table(title, "bytes", "share", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, size in sizes.items():
        table.add_row(name, size_text(size), f"{size / total:.1%}")
    return table


def _groups(info: ModelInfo) -> Table:
    """Tensors of the same role, shape, type and placement in one line, since a model has a thousand and more."""
    groups: dict[tuple[str, tuple[int, ...], str, str], list[TensorInfo]] = {}
    for t in info.tensors:
        block, _, rest = t.name.removeprefix("blk.").partition(".")
        name = f"blk.*.{rest}" if t.name.startswith("blk.") and block.isdigit() else t.name
        groups.setdefault((name, t.ne, t.type, t.placement), []).append(t)
    table = Table("tensor", "shape", "type", "kept", "number", "bytes", box=None, pad_edge=False)
    for column in table.columns[4:]:
        column.justify = "right"
    for (name, ne, type_name, placement), members in groups.items():
        size = sum(t.bytes for t in members)
        table.add_row(_shown(name), " x ".join(map(str, ne)), type_name, placement, str(len(members)), size_text(size))
    return table


def render(info: ModelInfo) -> RenderableType:
    """For a terminal: print it with rich.console.Console().print."""
    parts: list[RenderableType] = [_facts(info), ""]
    kept = info.bytes_by_placement | {"headers and padding": info.overhead_bytes}
    parts += [_sizes("kept", kept, info.total_bytes), "", _sizes("type", info.bytes_by_type, info.total_bytes), ""]
    parts.append(_groups(info))
    for warning in info.warnings:
        parts += ["", _shown(f"Note: {warning}")]
    return Group(*parts)
