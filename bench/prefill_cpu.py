"""Whole prefills and decoding with all weights in memory, ours against llama.cpp in one interleaved run on one file.

    python bench/prefill_cpu.py FILE.gguf [--peer-python PYTHON] [--threads N] [--tokens 512,2048] [--decode 32]
                                [--repeats 5] [--isa auto] [--activations auto] [--clock wall|cpu] [--json OUT]

PYTHON is an interpreter whose llama_cpp (package llama-cpp-python) is the peer. Prints medians of tokens per second and
their ratio. With PKPROF=1 in the environment also the time per op and kernel of our last turn.
Files come from bench/synth.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import profile_report
from strata import _core


def token(i: int) -> int:
    return (i * 7919 + 13) % 490


class Ours:
    def __init__(self, path: str, threads: int, context: int, isa: str, activations: str, clock: str):
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
        config = {"threads": threads, "context": context, "isa": isa, "activations": activations, "prompt_chunk": 2048}
        if os.environ.get("PKPROF") == "1":
            config["profile"] = True
        self.engine = _core.Engine(path, config)
        self.session = None

    def prefill(self, n: int) -> float:
        self.session = self.engine.session()
        return self._run(0, n)

    def decode(self, n: int) -> float:
        return sum(self._run(self.session.position, 1) for _ in range(n))

    def _run(self, first: int, n: int) -> float:
        ids = np.array([token(first + i) for i in range(n)], np.int32)
        start = self.clock()
        self.engine.prefill(self.session, ids, "last")
        return self.clock() - start


class Peer:
    def __init__(self, python: str, path: str, threads: int, context: int, clock: str):
        worker = Path(__file__).with_name("peer_worker.py")
        self.process = subprocess.Popen(
            [python, str(worker), path, str(threads), str(context), clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._read() != "ready":
            sys.exit("the peer did not start")

    def _read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def _call(self, text: str) -> float:
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def prefill(self, n: int) -> float:
        return self._call(f"prefill {n}")

    def decode(self, n: int) -> float:
        return self._call(f"decode {n}")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--peer-python")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--tokens", default="512,2048")
    ap.add_argument("--decode", type=int, default=32)
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--isa", default="auto")
    ap.add_argument("--activations", default="auto")
    ap.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu with --threads 1: for a busy machine")
    ap.add_argument("--json")
    a = ap.parse_args()
    lengths = [int(n) for n in a.tokens.split(",")]
    context = max(lengths) + a.decode + 8
    sides: dict[str, Ours | Peer] = {"ours": Ours(a.model, a.threads, context, a.isa, a.activations, a.clock)}
    if a.peer_python:
        sides["peer"] = Peer(a.peer_python, a.model, a.threads, context, a.clock)
    profiles: dict[str, list[tuple]] = {}
    rates: dict[str, dict[str, list[float]]] = {}
    for turn in range(a.repeats + 1):  # the first turn warms up and is not counted
        for n in lengths:
            for side, engine in sides.items():
                rate = n / engine.prefill(n)
                if isinstance(engine, Ours):
                    profiles[f"prefill {n}"] = engine.engine.profile()
                if turn:
                    rates.setdefault(f"prefill {n}", {}).setdefault(side, []).append(rate)
            if n == lengths[0] and a.decode:
                for side, engine in sides.items():
                    rate = a.decode / engine.decode(a.decode)
                    if isinstance(engine, Ours):
                        profiles["decode"] = engine.engine.profile()
                    if turn:
                        rates.setdefault("decode", {}).setdefault(side, []).append(rate)
    out = {"model": a.model, "threads": a.threads, "isa": sides["ours"].engine.effective, "results": {}}  # type: ignore[union-attr]
    for what, by_side in rates.items():
        medians = {side: statistics.median(v) for side, v in by_side.items()}
        row: dict[str, object] = {**medians, "all": by_side}
        text = f"{what:14} " + "  ".join(f"{side} {v:8.1f} tok/s" for side, v in medians.items())
        if "peer" in medians:
            row["ratio"] = statistics.median(o / p for o, p in zip(by_side["ours"], by_side["peer"], strict=True))
            text += f"  ratio {row['ratio']:.2f}"
        print(text, flush=True)
        out["results"][what] = row  # type: ignore[index]
    if os.environ.get("PKPROF") == "1":
        peak = sides["ours"].engine.peak()  # type: ignore[union-attr]
        for what, rows in profiles.items():
            print(f"\n{what}\n{profile_report.table(rows, peak)}")
    if a.json:
        Path(a.json).write_text(json.dumps(out, indent=1))
    if isinstance(sides.get("peer"), Peer):
        sides["peer"].process.kill()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
