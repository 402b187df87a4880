#!/usr/bin/env python3
"""Reads of a prompt, counted by the engine, against a replay of its routing: the same policy, LRU, and the fewest that
knowing the future allows.

    python bench/reads.py [FILE.gguf] [--arena 2,5,10,20,50,100] [--tokens 8192] [--sweep 2048] [--chunk 2048]
                          [--json OUT]

Without FILE one of 48 layers of 512 small experts is made (`strata synth --like demo --layers 48 --experts 512 --skew
1.9 --vocab 8192`, 0.7 GB, in --folder) and removed again. The prompt is random tokens. The engine starts with an empty
arena each time: without guesses its reads should be the replay's; with guesses those read in vain are counted too.
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
from strata import replay, synth
from strata.routing import Routing


def run(path: Path, ids: np.ndarray, record: bool = False, **knobs: Any) -> tuple[dict[str, Any], Routing | None]:
    with strata.load(path, context=len(ids), popularity="off", **knobs) as model:
        result = model.prefill(ids, logits=None, record=record)
        return result.stats, result.routing


def compare(path: Path, shares: list[float], tokens: int, sweep: int, chunk: int) -> list[dict[str, Any]]:
    knobs = {"prompt_sweep": sweep, "prompt_chunk": chunk}
    with strata.load(path, popularity="off") as model:
        vocab, every = model.info["n_vocab"], model.info["n_layer"] * model.info["n_expert"]
    ids = np.random.default_rng(1).integers(0, vocab, tokens).astype(np.int32)
    _, routing = run(path, ids, record=True, stream_fake=False, **knobs)
    assert routing is not None
    rows = []
    print(f"{tokens} tokens in sweeps of {sweep}, chunks of {chunk}; {every} experts. Reads:")
    titles = ("engine", "+guesses", "replay", "lru", "fewest", "ratio")
    print(f"{'arena':>8s} {'slots':>7s} " + " ".join(f"{t:>9s}" for t in titles))
    for share in shares:
        slots = max(1, round(every * share / 100))
        plain, _ = run(path, ids, arena_slots=slots, prompt_pred=-1, **knobs)
        ahead, _ = run(path, ids, arena_slots=slots, prompt_pred=1, **knobs)
        found = {
            name: replay.replay(routing, name, slots, sweep=sweep, chunk=chunk).prompt.reads
            for name in ("engine", "lru", "belady")
        }
        row = {
            "share": share,
            "slots": slots,
            "lookups": plain["lookups"],
            "engine": plain["issued"] - plain["cancelled"],
            "engine_with_guesses": ahead["issued"] - ahead["cancelled"] - ahead["pending"],
            "wasted": ahead["wasted"],
            "replay": found["engine"],
            "lru": found["lru"],
            "fewest": found["belady"],
        }
        row["ratio"] = row["engine_with_guesses"] / row["fewest"]
        rows.append(row)
        counts = [row[k] for k in ("engine", "engine_with_guesses", "replay", "lru", "fewest")]
        text = " ".join(f"{n:9d}" for n in counts)
        print(f"{share:6g} % {slots:7d} {text} {row['ratio']:9.3f}", flush=True)
    return rows


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?", type=Path)
    ap.add_argument("--arena", default="2,5,10,20,50,100", help="percent of all experts")
    ap.add_argument("--tokens", type=int, default=8192)
    ap.add_argument("--sweep", type=int, default=2048)
    ap.add_argument("--chunk", type=int, default=2048)
    ap.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    ap.add_argument("--json", type=Path)
    a = ap.parse_args()
    path = a.model or a.folder / f"reads-{os.getpid()}.gguf"
    try:
        if not a.model:
            synth.make(path, synth.spec("demo", layers=48, experts=512, vocab=8192, skew=1.9, context=1 << 20))
        rows = compare(path, [float(n) for n in a.arena.split(",")], a.tokens, a.sweep, a.chunk)
    finally:
        if not a.model:
            path.unlink(missing_ok=True)
    if a.json:
        settings = {"tokens": a.tokens, "sweep": a.sweep, "chunk": a.chunk}
        a.json.write_text(json.dumps({**settings, "rows": rows}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
