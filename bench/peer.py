"""llama.cpp beside strata on the same file and tokens: logits compared, prefill and decode in interleaved pairs.

    python bench/peer.py FILE.gguf --peer-python PYTHON --text TEXT [--tokens 512] [--decode 32] [--pairs 8]
                         [--threads N] [--clock wall|cpu] [--isa auto] [--json OUT] [--plot OUT.png]

PYTHON is an interpreter with the package llama-cpp-python; bench/README.md says how to make it. Both sides get the same
token ids, strata's reading of TEXT, and the same number of threads, and keep everything in memory: strata an arena of
all experts, the peer the file mapped into memory. A pair is one turn of each, next to each other in time; which goes
first alternates (A B B A). The first pair warms up and is not counted.

Figures: tokens per second, the ratio strata / peer of each pair and its median with an interval; of the logits, the
peer's as the reference, mean and largest KL divergence and how often the most likely token is the same. The two need
not agree to the last digit: both round activations, in different ways.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prefill_cpu
import strata
from strata import kld
from strata.ab import stats


class Ours(prefill_cpu.Ours):
    """strata, on given tokens."""

    def __init__(self, ids: np.ndarray, *arguments: Any):
        super().__init__(*arguments)
        self.ids = ids

    def _run(self, first: int, n: int) -> float:
        start = self.clock()
        self.engine.prefill(self.session, self.ids[first : first + n], "last")
        return self.clock() - start

    def logits(self, n: int) -> np.ndarray:
        """float32 [n, vocab], after each of the first n tokens."""
        values, _ = self.engine.prefill(self.engine.session(), self.ids[:n], "all")
        return values


class Peer(prefill_cpu.Peer):
    """llama.cpp, on given tokens."""

    def __init__(self, ids: np.ndarray, *arguments: Any):
        super().__init__(*arguments)
        with tempfile.NamedTemporaryFile(suffix=".ids") as file:
            file.write(ids.astype("<i4").tobytes())
            file.flush()
            self._call(f"ids {file.name}")

    def logits(self, n: int) -> np.ndarray:
        """As Ours.logits."""
        with tempfile.NamedTemporaryFile(suffix=".logits") as file:
            self._call(f"logits {n} {file.name}")
            return np.fromfile(file.name, "<f4").reshape(n, -1)


def agreement(reference: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """Of logits [n, vocab]: KL divergence in nats, most likely tokens, difference of log-probabilities."""
    ref, log_p = kld.log_softmax(reference), kld.log_softmax(own)
    each = (np.exp(ref) * (ref - log_p)).sum(axis=1)
    return {
        "places": len(each),
        "kld_mean": float(each.mean()),
        "kld_median": float(np.median(each)),
        "kld_max": float(each.max()),
        "same_most_likely": float((ref.argmax(axis=1) == log_p.argmax(axis=1)).mean()),
        "log_probability_rms": float(np.sqrt(((ref - log_p) ** 2).mean())),
    }


def measure(sides: dict[str, Any], tokens: int, decode: int, pairs: int) -> dict[str, dict[str, list[float]]]:
    """Tokens per second: phase -> side -> a value for each pair."""
    rates: dict[str, dict[str, list[float]]] = {"prefill": {}, "decode": {}}
    names = list(sides)
    for pair in range(pairs + 1):
        for name in names if pair % 2 else names[::-1]:
            turn = {"prefill": tokens / sides[name].prefill(tokens)}
            if decode:
                turn["decode"] = decode / sides[name].decode(decode)
            for phase, rate in turn.items() if pair else ():
                rates[phase].setdefault(name, []).append(rate)
        print(f"\rpair {pair} of {pairs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {phase: by_side for phase, by_side in rates.items() if by_side}


def compared(by_side: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and the ratio of the pairs with its interval."""
    ratios = [math.log(a / b) for a, b in zip(by_side["strata"], by_side["peer"], strict=True)]
    return {
        "tokens_per_second": by_side,
        "median": {name: float(np.median(values)) for name, values in by_side.items()},
        "ratio": stats.verdict(ratios, stats.ALPHA).to_json(),
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    from strata import doctor

    return {"system": platform.platform(), "processor": doctor.processor_name(), "cores": os.cpu_count()}


def plot(report: dict[str, Any], klds: np.ndarray, path: str) -> None:
    """Speeds turn by turn, and the divergence along the text."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    phases = list(report["speed"])
    figure, axes = plt.subplots(1, len(phases) + 1, figsize=(4 * (len(phases) + 1), 3.2), layout="constrained")
    for axis, phase in zip(axes, phases, strict=False):
        for x, (name, values) in enumerate(report["speed"][phase]["tokens_per_second"].items()):
            axis.bar(x, np.median(values), color=("C0", "C1")[x], alpha=0.35)
            axis.plot(np.linspace(x - 0.2, x + 0.2, len(values)), values, ".", color=("C0", "C1")[x])
            axis.text(x, 0, name, ha="center", va="bottom")
        axis.set(title=f"{phase}, tokens/s", xticks=[])
    axes[-1].semilogy(np.maximum(klds, 1e-9), ".", ms=2, color="C2")
    axes[-1].set(title="KL divergence by place, nats", xlabel="token")
    figure.savefig(path, dpi=110)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--peer-python", required=True)
    ap.add_argument("--text", required=True, help="a UTF-8 file with at least as many tokens as are asked for")
    ap.add_argument("--tokens", type=int, default=512, help="of a prefill")
    ap.add_argument("--decode", type=int, default=32, help="tokens forced one at a time after it")
    ap.add_argument("--pairs", type=int, default=8)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--isa", default="auto")
    ap.add_argument("--activations", default="auto")
    ap.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu with --threads 1: for a busy machine")
    ap.add_argument("--json", metavar="OUT")
    ap.add_argument("--plot", metavar="OUT")
    a = ap.parse_args()
    with strata.load(a.model, context=256, arena_slots=0) as model:
        ids = np.array(model.tokenizer.encode(Path(a.text).read_text("utf-8")), np.int32)
    need = a.tokens + a.decode
    if len(ids) < need:
        sys.exit(f"{a.text} has {len(ids)} tokens, {need} are needed")
    ids = ids[:need]
    context = need + 8
    ours = Ours(ids, a.model, a.threads, context, a.isa, a.activations, a.clock)
    peer = Peer(ids, a.peer_python, a.model, a.threads, context, a.clock)
    try:
        theirs, own = peer.logits(a.tokens), ours.logits(a.tokens)
        if theirs.shape != own.shape:
            sys.exit(f"the peer gives logits {theirs.shape}, strata {own.shape}")
        rates = measure({"strata": ours, "peer": peer}, a.tokens, a.decode, a.pairs)
    finally:
        peer.process.kill()
    versions = [a.peer_python, "-c", "import llama_cpp; print(llama_cpp.__version__)"]
    report = {
        "model": Path(a.model).name,
        "tokens": a.tokens,
        "decode": a.decode,
        "clock": a.clock,
        "machine": machine(),
        "strata": {"version": strata.__version__, **ours.engine.effective},
        "peer": {
            "llama-cpp-python": subprocess.run(versions, capture_output=True, text=True).stdout.strip(),
            "threads": a.threads,
        },
        "logits": agreement(theirs, own),
        "speed": {phase: compared(by_side) for phase, by_side in rates.items()},
    }
    for phase, row in report["speed"].items():
        m, r = row["median"], row["ratio"]
        interval = "too few pairs" if r["low"] is None else f"{r['low']:.2f} to {r['high']:.2f}"
        print(f"{phase:8} strata {m['strata']:9.1f}  peer {m['peer']:9.1f} tok/s  ratio {r['ratio']:.2f} ({interval})")
    print("logits  ", "  ".join(f"{name} {value:.4g}" for name, value in report["logits"].items()))
    if a.json:
        Path(a.json).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if a.plot:
        ref, log_p = kld.log_softmax(theirs), kld.log_softmax(own)
        plot(report, (np.exp(ref) * (ref - log_p)).sum(axis=1), a.plot)


if __name__ == "__main__":
    main()
