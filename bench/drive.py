#!/usr/bin/env python3
"""How busy is the drive, and what does it cost? Real reads under a throttle against the same work without reads.

    python bench/drive.py balance FILE [--tokens 1024] [--chunk 1024] [--share 1.0 0.5] [--pairs 7]
    python bench/drive.py sweep FILE [--tokens 8192]
    python bench/drive.py arena FILE [--tokens 1024]

`balance`: the throttle is set so that the drive takes as long as the arithmetic (share 1), or twice as long (0.5);
share 0 is the drive as it is, whose speed `strata ssd` finds. Rounds of a run that reads nothing (`stream_fake`) and
one with real reads for each share, there and back; medians: wall against the larger of bytes / throttle and the time
without reads, the time outside waits, and the share of the throttle from the first read to the last. `sweep`: a long
prompt in one sweep, and in sweeps of 2048 rows; chunks of 2048 against 1024; then decoding. `arena`: the same prompt
with arenas from 2 to 100 % of the experts.

FILE: `strata synth FILE --layers 12` or larger. Linux, root, cgroup v1 with blkio. Every model is loaded before the
throttle is set, in a process of its own that stays for all its runs; a run's arena is what the run before left. Without
a throttle it needs neither root nor cgroups.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from cgroup import throttle_reads

BLKIO = Path("/sys/fs/cgroup/blkio")


# ---------------------------------------------------------------- the process that runs the model


class Sampler(threading.Thread):
    """Bytes that this process read from devices, every 20 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.points: list[tuple[float, int]] = []
        self.done = threading.Event()
        self._look()

    def _look(self) -> None:
        text = Path("/proc/self/io").read_text()
        self.points.append((time.perf_counter(), int(text.split("read_bytes:")[1].split()[0])))

    def run(self) -> None:
        while not self.done.wait(0.02):
            self._look()

    def rate(self) -> float:
        """Bytes a second from the first read to the last, the last 1 % left out: it is what a reader had begun."""
        self.done.set()
        self.join()
        first, last = self.points[0][1], self.points[-1][1]
        moved = [(t, b) for t, b in self.points if first < b <= first + 0.99 * (last - first)]
        return (moved[-1][1] - moved[0][1]) / (moved[-1][0] - moved[0][0]) if len(moved) > 2 else 0.0


def worker(path: str, knobs: dict[str, Any]) -> None:
    """Loads, then runs the jobs that come as JSON lines."""
    import strata

    cgroup = BLKIO / f"strata-drive-{os.getpid()}"

    def throttle(rate: int) -> None:  # 0: none
        if rate and not cgroup.exists():
            cgroup.mkdir()
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        if cgroup.exists():
            throttle_reads(cgroup, path, rate)

    model = strata.load(path, popularity="off", **knobs)
    print(json.dumps({"plan": sum(b for _, b in model.plan), "effective": model.effective}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        tokens = np.random.default_rng(job["seed"]).integers(0, job["vocab"], job["tokens"]).astype(np.int32)
        throttle(int(job.get("throttle", 0)))
        before = resource.getrusage(resource.RUSAGE_SELF)
        sampler = Sampler()
        sampler.start()
        result = model.prefill(tokens, logits="last")
        stats = result.stats
        out = {
            "rate": sampler.rate(),
            "sha": hashlib.sha256(result.logits.tobytes()).hexdigest()[:16],
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            **{k: v for k, v in stats.items() if isinstance(v, (int, float))},
        }
        if job.get("decode"):
            start = time.perf_counter()
            steps = [result.session.prefill([int(t)], logits=None).stats for t in tokens[: job["decode"]]]
            out["decode_seconds"] = (time.perf_counter() - start) / job["decode"]
            out["decode_bytes"] = sum(s["bytes_read"] for s in steps) / job["decode"]
        after = resource.getrusage(resource.RUSAGE_SELF)
        out["major_faults"] = after.ru_majflt - before.ru_majflt
        out["user_s"], out["system_s"] = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        throttle(0)
        result.session.close()
        print(json.dumps(out), flush=True)
    model.close()
    if cgroup.exists():
        (BLKIO / "cgroup.procs").write_text(str(os.getpid()))
        cgroup.rmdir()


class Worker:
    """A loaded model in its own process."""

    def __init__(self, path: Path, **knobs: Any) -> None:
        command = [sys.executable, __file__, "worker", str(path), json.dumps(knobs)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = self._line()
        self.plan, self.effective = first["plan"], first["effective"]

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, tokens: int, vocab: int, seed: int = 1, throttle: float = 0, decode: int = 0) -> dict[str, Any]:
        """One prompt; throttle in bytes a second, 0 for none."""
        assert self.process.stdin
        job = {"tokens": tokens, "vocab": vocab, "seed": seed, "throttle": throttle, "decode": decode}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return self._line()

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


# ---------------------------------------------------------------- the benches


def facts(path: Path) -> tuple[int, int]:
    """(vocabulary, experts in all) of the file."""
    from strata import _core

    file = _core.GgufFile(os.fsencode(path))
    layers, experts = (int(file.value(f"qwen4exp.{key}")) for key in ("block_count", "expert_count"))
    return len(file.value("tokenizer.ggml.tokens")), layers * experts


def middle(runs: list[dict[str, Any]], key: str) -> float:
    """Median."""
    return statistics.median(r[key] for r in runs)


def balance(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """See above."""
    from strata import ssd

    vocab, experts = facts(path)
    knobs = {"prompt_chunk": args.chunk, "prompt_sweep": max(args.chunk, args.tokens), "context": 2 * args.tokens}
    knobs["threads"] = args.threads
    real = Worker(path, arena_slots=int(experts * args.arena), **knobs)
    fake = Worker(path, arena_gb=args.fake_gb, stream_fake=True, **knobs)
    fake.run(args.tokens, vocab)
    base = statistics.median(fake.run(args.tokens, vocab)["seconds"] for _ in range(3))
    bytes_read = middle([real.run(args.tokens, vocab, seed) for seed in (1, 2)], "bytes_read")
    speed = 0.0 if all(args.share) else ssd.probe(path, seconds=6).best.gb_per_second * 1e9
    limits = [share * bytes_read / base if share else speed for share in args.share]
    rounds: list[list[dict[str, Any]]] = []  # of a round: the run without reads, then one for each share
    for i in range(args.pairs):
        runs: dict[int, dict[str, Any]] = {}
        for k in sorted(range(len(limits) + 1), reverse=i % 2 == 1):
            throttle = limits[k - 1] if k and args.share[k - 1] else 0
            runs[k] = (real if k else fake).run(args.tokens, vocab, seed=2 + i, throttle=throttle)
        rounds.append([runs[k] for k in sorted(runs)])
    found = []
    for k, (share, limit) in enumerate(zip(args.share, limits, strict=True), 1):
        pairs = [(one[k], one[0]) for one in rounds]
        walls = [r["seconds"] / max(r["bytes_read"] / limit, f["seconds"]) for r, f in pairs]
        outside = [(r["seconds"] - r["exposed_seconds"]) / f["seconds"] for r, f in pairs]
        reals = [r for r, _ in pairs]
        row = {
            "share": share,
            "throttle_gb_s": limit / 1e9,
            "fake_s": statistics.median(f["seconds"] for _, f in pairs),
            "wall_s": middle(reals, "seconds"),
            "exposed_s": middle(reals, "exposed_seconds"),
            "wall_over_bound": statistics.median(walls),
            "wall_over_bound_all": sorted(round(w, 3) for w in walls),
            "outside_waits_over_fake": statistics.median(outside),
            "drive_share": statistics.median(r["rate"] / limit for r in reals),
            "gb_read": middle(reals, "bytes_read") / 1e9,
            "ahead": sum(r["ahead"] for r in reals) / sum(r["lookups"] for r in reals),
            "missed": sum(r["missed"] for r in reals) / sum(r["lookups"] for r in reals),
            "wasted": sum(r["wasted"] for r in reals) / sum(r["issued"] - r["cancelled"] for r in reals),
            "rss_over_plan": max(r["rss"] for r in reals) / real.plan,
            "major_faults": sum(r["major_faults"] for r in reals),
        }
        print(json.dumps(row, indent=1), flush=True)
        found.append(row)
    real.close()
    fake.close()
    return {"balance": found}


def sweep(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """See above."""
    vocab, experts = facts(path)
    common = {"context": args.tokens + 256, "threads": args.threads}
    slots = int(experts * args.arena)
    runs = {}
    for name, knobs, tokens in (
        ("short", {"prompt_chunk": 1024, "prompt_sweep": args.tokens, "arena_slots": slots}, 512),
        ("one", {"prompt_chunk": 1024, "prompt_sweep": args.tokens, "arena_slots": slots}, args.tokens),
        ("many", {"prompt_chunk": 2048, "prompt_sweep": 2048, "arena_slots": slots}, args.tokens),
        (
            "fake",
            {"prompt_chunk": 1024, "prompt_sweep": args.tokens, "arena_gb": args.fake_gb, "stream_fake": True},
            args.tokens,
        ),
        ("c2048", {"prompt_chunk": 2048, "prompt_sweep": 2048, "arena_slots": slots}, 2048),
        ("c1024", {"prompt_chunk": 1024, "prompt_sweep": 1024, "arena_slots": slots}, 2048),
    ):
        w = Worker(path, **common, **knobs)
        runs[name] = w.run(tokens, vocab, decode=24 if name in ("short", "one") else 0)
        w.close()
        print(
            name,
            json.dumps(
                {k: runs[name][k] for k in ("seconds", "exposed_seconds", "bytes_read", "lookups", "reads", "sha")}
            ),
            flush=True,
        )
    one, many = runs["one"], runs["many"]
    row = {
        "reads_over_distinct": (one["issued"] - one["cancelled"] - one["pending"])
        / one["lookups"],  # one sweep: each lookup is another expert
        "many_over_one_bytes": many["bytes_read"] / one["bytes_read"],
        "same_bits": one["sha"] == many["sha"],
        "wall_over_fake": one["seconds"] / runs["fake"]["seconds"],
        "decode_after_long_over_short": one["decode_seconds"] / runs["short"]["decode_seconds"],
        "c2048_fewer_bytes": 1 - runs["c2048"]["bytes_read"] / runs["c1024"]["bytes_read"],
        "chunks_same_bits": runs["c2048"]["sha"] == runs["c1024"]["sha"],
    }
    print(json.dumps(row, indent=1))
    return {"sweep": row, "runs": runs}


def arena(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """See above."""
    vocab, experts = facts(path)
    rows = []
    for percent in args.percent:
        w = Worker(
            path,
            prompt_chunk=args.chunk,
            prompt_sweep=args.chunk,
            context=2 * args.tokens,
            threads=args.threads,
            arena_slots=max(int(experts * percent / 100), 120),
        )
        first = w.run(args.tokens, vocab, throttle=args.throttle * 1e9)
        again = [
            w.run(args.tokens, vocab, seed=2 + i, throttle=args.throttle * 1e9, decode=8) for i in range(args.pairs)
        ]
        w.close()
        rows.append(
            {
                "percent": percent,
                "cold_s": first["seconds"],
                "wall_s": middle(again, "seconds"),
                "gb": middle(again, "bytes_read") / 1e9,
                "exposed_s": middle(again, "exposed_seconds"),
                "decode_s": middle(again, "decode_seconds"),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return {"arena": rows}


def main() -> None:
    """Command line."""
    if len(sys.argv) > 1 and sys.argv[1] == "worker":
        worker(sys.argv[2], json.loads(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="do", required=True)
    for name, tokens, share in (("balance", 1024, 0.18), ("sweep", 8192, 0.1), ("arena", 1024, 0.0)):
        p = sub.add_parser(name)
        p.add_argument("file", type=Path)
        p.add_argument("--tokens", type=int, default=tokens)
        p.add_argument("--chunk", type=int, default=1024)
        p.add_argument("--arena", type=float, default=share, help="share of the experts")
        p.add_argument("--share", type=float, nargs="+", default=[1.0, 0.5])
        p.add_argument("--pairs", type=int, default=7 if name == "balance" else 3)
        p.add_argument("--throttle", type=float, default=0.0, help="GB/s, 0 for none (arena)")
        p.add_argument("--threads", type=int, default=0)
        p.add_argument("--percent", type=float, nargs="+", default=[2, 5, 10, 20, 50, 100], help="of the experts")
        p.add_argument("--fake-gb", type=float, default=3.0, help="experts that the run without reads computes with")
        p.add_argument("--json", type=Path)
    args = parser.parse_args()
    result = {"balance": balance, "sweep": sweep, "arena": arena}[args.do](args.file, args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
