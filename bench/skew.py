#!/usr/bin/env python3
"""What the router of a model does: distinct experts per chunk, popularity, and how well layers predict each other.

    python bench/skew.py [FILE.gguf] [--trace RUN.npz] [--tokens 4096] [--json OUT]

FILE is run on random tokens of its vocabulary; without it a file is made as `strata synth --like real --layers 4
--vocab 8192 --skew 1.9` does (3 GB, in --folder) and removed again. --trace takes a recording (`strata prefill
--record`) instead. Beside it stand the figures recorded on the published model, and those of the recording of the demo
model, tests/data/demo/routing.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import strata
from strata import routing, synth
from strata.routing import Routing

CHUNKS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048)
RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 400)
DEMO = Path(__file__).resolve().parents[1] / "tests" / "data" / "demo" / "routing.npz"
# docs/learned.md, "The stream": experts that a chunk of the published model touches in a layer.
PUBLISHED = {"distinct": {1: 10, 1024: 410, 2048: 470}}


def measures(run: Routing) -> dict[str, Any]:
    """Means over the layers. recall and precision: of the guesses' distinct experts, by tokens of a chunk."""
    chunks = [n for n in CHUNKS if n <= run.rows]
    curve = run.popularity() * run.ids.shape[2]
    report: dict[str, Any] = {
        "tokens": run.rows,
        "layers": run.layers,
        "experts": run.experts,
        "used": int(run.ids.shape[2]),
        "distinct": {n: run.distinct(n) for n in chunks},
        "popularity": {r: float(curve[r - 1]) for r in RANKS if r <= run.experts},
        "reuse": run.reuse(),
    }
    if run.predicted is not None:
        report["recall"] = {n: float(run.recall(n).mean()) for n in chunks}
        report["precision"] = {n: float(run.precision(n).mean()) for n in chunks}
        report["recall_by_layer"] = run.recall().tolist()
    return report


def record(path: Path, tokens: int, seed: int = 1) -> Routing:
    """The routing of a prompt of random tokens."""
    with strata.load(path, context=tokens, prompt_pred=1, popularity="off") as model:
        ids = np.random.default_rng(seed).integers(0, model.info["n_vocab"], tokens).astype(np.int32)
        result = model.prefill(ids, logits=None, record=True)
        assert result.routing is not None
        return result.routing


def show(columns: dict[str, dict[str, Any]]) -> None:
    def table(title: str, key: str, form: str) -> None:
        rows = sorted({n for c in columns.values() for n in c.get(key, {})})
        if rows:
            print(f"\n{title:28s}" + "".join(f"{name:>24s}" for name in columns))
        for n in rows:
            cells = (format(c[key][n], form) if n in c.get(key, {}) else "" for c in columns.values())
            print(f"{n:28d}" + "".join(f"{cell:>24s}" for cell in cells))

    table("distinct experts of tokens", "distinct", ".1f")
    table("share of tokens, by rank", "popularity", ".4f")
    table("recall of guesses, tokens", "recall", ".3f")
    table("precision of guesses, tokens", "precision", ".3f")
    for name, c in columns.items():
        if "reuse" in c:
            print(f"{name}: {c['reuse']:.3f} of a token's experts were the token's before it; experts {c['experts']}")
        if "recall_by_layer" in c:
            print(f"{name}: recall by layer " + " ".join(f"{r:.2f}" for r in c["recall_by_layer"]))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?", type=Path)
    ap.add_argument("--trace", type=Path)
    ap.add_argument("--tokens", type=int, default=4096)
    ap.add_argument("--skew", type=float, default=1.9, help="of the file that is made")
    ap.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    ap.add_argument("--json", type=Path)
    a = ap.parse_args()
    if a.trace:
        name, run = a.trace.name, routing.load(a.trace)
    elif a.model:
        name, run = a.model.name, record(a.model, a.tokens)
    else:
        path = a.folder / f"skew-{os.getpid()}.gguf"
        try:
            synth.make(path, synth.spec("real", layers=4, vocab=8192, skew=a.skew))
            name, run = f"synth, skew {a.skew:g}", record(path, a.tokens)
        finally:
            path.unlink(missing_ok=True)
    columns = {name: measures(run), "published, recorded": PUBLISHED, "demo, recorded": measures(routing.load(DEMO))}
    show(columns)
    if a.json:
        a.json.write_text(json.dumps(columns, indent=1))


if __name__ == "__main__":
    sys.exit(main())
