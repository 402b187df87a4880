#!/usr/bin/env python3
"""Cold prefill and decode of a file larger than memory: strata against llama.cpp on the same file under the same limit.

    python bench/prefill.py FILE.gguf --peer-python PYTHON [--limit 2.6G] [--tokens 512,2048] [--decode 16]
                            [--repeats 7] [--threads N] [--ubatch 512] [--throttle GB/s] [--json OUT] [--plot OUT.png]

Each run is a process of its own in a memory cgroup of --limit (two thirds of the file when it is not given), after the
page cache was dropped. The sides take turns. llama.cpp maps the file, as its users run it, and repacks no weights;
--ubatch is the number of tokens it takes through a layer together. --throttle holds both sides' reads to so many GB
(10^9 bytes) a second, for a drive whose own speed wanders. strata gets no settings but context and threads, and
no popularity from earlier runs. Seconds are those of the prefill and of the decoding after it, without loading; "from
start" has it all. With --json OUT a file that is there already is added to, so that a bench can be done in parts. Needs
Linux and root. PYTHON: see bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cgroup import MemoryCgroup, NoCgroup
from strata import inspect, ssd
from strata.cli.sizes import byte_size

SIDES = ("strata", "llama.cpp")


def token(i: int, vocab: int) -> int:
    return (i * 7919 + 13) % vocab  # as bench/peer_worker.py


def child(path: str, threads: int, context: int, vocab: int, tokens: int, decode: int) -> None:
    """strata's run: answers as bench/peer_worker.py does with io=1."""
    import strata

    with strata.load(path, threads=threads, context=context) as model:
        session = model.session()
        print("ready", flush=True)
        at = 0
        for first, count, step in ((0, tokens, tokens), (tokens, decode, 1)):
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            for at in range(first, first + count, step):
                ids = np.array([token(i, vocab) for i in range(at, at + step)], np.int32)
                session.prefill(ids)
            seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
            print(seconds, 512 * (after.ru_inblock - before.ru_inblock), after.ru_majflt - before.ru_majflt, flush=True)
        print(json.dumps(model.effective), flush=True)


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def run(side: str, a: argparse.Namespace, vocab: int, tokens: int) -> dict[str, Any]:
    """One cold process: seconds, bytes read and major faults of the prefill and of decoding; memory held."""
    context = tokens + a.decode + 8
    sizes = [str(a.model), str(a.threads), str(context)]
    if side == "strata":
        command = [
            sys.executable,
            __file__,
            "--child",
            json.dumps([sizes[0], a.threads, context, vocab, tokens, a.decode]),
        ]
        commands = ""
    else:
        worker = str(Path(__file__).with_name("peer_worker.py"))
        command = [a.peer_python, worker, *sizes, "wall", f"vocab={vocab}", "repack=0", "io=1"]
        command.append(f"ubatch={a.ubatch}")
        commands = f"prefill {tokens}\ndecode {a.decode}\n"
    drop_caches()
    with tempfile.TemporaryDirectory() as empty, MemoryCgroup(a.limit, a.model, int(a.throttle * 1e9)) as group:
        start = time.perf_counter()
        done = group.run(command, input=commands, env={**os.environ, "XDG_CACHE_HOME": empty})
        whole = time.perf_counter() - start
        report = {"peak_anonymous": group.anonymous, "peak_page_cache": group.file, "killed": group.kills}
    lines = done.stdout.split("\n")
    if done.returncode or lines[0] != "ready":
        sys.exit(f"{side} failed ({done.returncode}, {report}):\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    for part, line, count in (("prefill", lines[1], tokens), ("decode", lines[2], a.decode)):
        seconds, read, faults = (float(x) for x in line.split())
        report[part] = {
            "seconds": seconds,
            "tokens_per_second": count / seconds,
            "bytes": read,
            "gb_per_second": read / 1e9 / seconds,
            "major_faults": faults,
        }
    report["from_start"] = whole - report["decode"]["seconds"]
    if side == "strata":
        report["effective"] = json.loads(lines[3])
    return report


def summary(report: dict[str, Any]) -> list[str]:
    """Medians, and the median of the pairs' ratios."""
    titles = f"{'':22s}{'strata':>10s}{'llama.cpp':>11s}{'ratio':>7s}{'all ratios':>16s}"
    lines = [titles + "   GB read        GB/s        major faults"]
    floor = report["throttle"] or report["probe_gb_per_second"]
    report["summary"] = {}
    for tokens, pairs in report["runs"].items():
        for part in ("prefill", "decode", "from_start"):

            def of(side: str, key: str, pairs: list[Any] = pairs, part: str = part) -> float:
                return statistics.median(p[side][part][key] for p in pairs)

            if part == "from_start":
                rates = [[int(tokens) / p[s][part] for s in SIDES] for p in pairs]
            else:
                rates = [[p[s][part]["tokens_per_second"] for s in SIDES] for p in pairs]
            ratios = sorted(ours / theirs for ours, theirs in rates)
            ours, theirs = (statistics.median(r[i] for r in rates) for i in (0, 1))
            name = f"{part.replace('_', ' ')} {tokens if part != 'decode' else 'after ' + tokens}"
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            text = f"{name:22s}{ours:10.2f}{theirs:11.2f}{statistics.median(ratios):7.2f}{spread:>16s}"
            row: dict[str, Any] = {
                "strata": ours,
                "llama.cpp": theirs,
                "ratio": statistics.median(ratios),
                "all": ratios,
            }
            if part != "from_start":
                read, speed, faults = ([of(s, k) for s in SIDES] for k in ("bytes", "gb_per_second", "major_faults"))
                text += f"   {read[0] / 1e9:5.2f} {read[1] / 1e9:5.2f}   {speed[0]:4.2f} {speed[1]:4.2f}"
                text += f"   {faults[0]:7.0f} {faults[1]:7.0f}"
                row |= {"bytes": read, "gb_per_second": speed, "major_faults": faults}
                if floor:
                    row["share_of_limit"] = [v / floor for v in speed]
            report["summary"][name] = row
            lines.append(text)
    return lines


def plot(report: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axis, part in zip(axes, ("prefill", "decode"), strict=True):
        for i, side in enumerate(SIDES):
            for k, pairs in enumerate(report["runs"].values()):
                rates = [p[side][part]["tokens_per_second"] for p in pairs]
                x = k + 0.4 * i - 0.2
                label = side if k == 0 else None
                axis.bar(x, statistics.median(rates), 0.36, color=f"C{i}", alpha=0.6, label=label)
                axis.plot([x] * len(rates), rates, "k.", markersize=4)
        axis.set_xticks(range(len(report["runs"])), [f"{n} tokens" for n in report["runs"]])
        axis.set_ylabel("tokens per second")
        axis.set_title(f"{part}, cold")
        axis.legend()
    size, limit = (report[k] / 1e9 for k in ("file_bytes", "limit"))
    figure.suptitle(f"file of {size:.1f} GB, memory limit {limit:.1f} GB, {report['threads']} threads")
    figure.savefig(path, dpi=150)


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(*json.loads(sys.argv[2]))
        return 0
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", type=Path)
    ap.add_argument("--peer-python", required=True)
    ap.add_argument("--limit", type=lambda text: byte_size(None, None, text))  # type: ignore[arg-type]
    ap.add_argument("--tokens", default="512,2048")
    ap.add_argument("--decode", type=int, default=16)
    ap.add_argument("--repeats", type=int, default=7)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--ubatch", type=int, default=512)
    ap.add_argument("--throttle", type=float, default=0.0)
    ap.add_argument("--json", type=Path)
    ap.add_argument("--plot", type=Path)
    a = ap.parse_args()
    if a.decode < 1 or not (a.throttle == 0 or 1e-3 <= a.throttle < 1e3):
        ap.error("--decode is 1 or more, --throttle 0.001 to 1000, or 0")
    info = inspect.inspect(a.model)
    a.limit = a.limit or info.total_bytes * 2 // 3
    settings = {"model": a.model.name, "file_bytes": info.total_bytes, "limit": a.limit, "threads": a.threads}
    settings |= {"decode": a.decode, "ubatch": a.ubatch, "throttle": a.throttle}
    report: dict[str, Any] = settings | {"runs": {}, "probe_gb_per_second": ssd.cached(a.model)}
    if a.json and a.json.exists():
        report = json.loads(a.json.read_text())
        if any(report.get(k, 0.0) != v for k, v in settings.items()):
            sys.exit(f"{a.json} is of another file or other settings")
    vocab = info.hparams["n_vocab"]
    for _ in range(a.repeats):
        for tokens in a.tokens.split(","):
            order = SIDES[:: -1 if len(report["runs"].get(tokens, [])) % 2 else 1]
            try:
                pair = {side: run(side, a, vocab, int(tokens)) for side in order}
            except NoCgroup as e:
                print(f"no cgroup: {e}", file=sys.stderr)
                return 77
            report["runs"].setdefault(tokens, []).append(pair)
            if a.json:  # a part is not lost when the next one fails
                a.json.write_text(json.dumps(report, indent=1))
    print(
        f"{a.model.name}: {info.total_bytes / 1e9:.2f} GB, limit {a.limit / 1e9:.2f} GB, {a.threads} threads; tokens/s"
    )
    print("\n".join(summary(report)))
    if a.throttle or report["probe_gb_per_second"]:
        how = "limit of the reads" if a.throttle else "probe of the drive (strata ssd)"
        print(f"{how}: {a.throttle or report['probe_gb_per_second']:.2f} GB/s")
    if a.json:
        a.json.write_text(json.dumps(report, indent=1))
    if a.plot:
        plot(report, a.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
