"""Speed of the products per type and number of rows, ours against llama.cpp's kernels on the same bytes in one run.

    python bench/kernels.py [--peer FOLDER] [--threads 1] [--repeats 7] [--isa auto] [--types IQ2_XS,Q8_0] [--json OUT]

FOLDER holds libggml-base.so and libggml-cpu.so (llama_cpp/lib of an installed llama-cpp-python). Runs are interleaved;
figures are medians, in 1e9 multiply-adds a second of processor time (of all threads, times the threads), which other
programs on the machine disturb least. The peer has the better of its two layouts (as stored, repacked).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "tests" / "oracle"),
    str(HERE.parent / "tests" / "quant"),
    str(HERE.parent / "tests" / "cpu"),
]

import cpu_cases  # noqa: E402
import ggml  # noqa: E402
from strata import _core  # noqa: E402

# Layer shapes of the published model: (type, K, N, pack at load)
SHAPES = [
    ("IQ2_XS", 2560, 640, False),
    ("Q2_0", 640, 2560, False),
    ("IQ4_NL", 640, 2560, False),
    ("Q4_K", 2560, 640, False),
    ("Q8_0", 2560, 640, False),
    ("Q8_0", 2560, 2560, True),
    ("Q6_K", 2560, 2560, False),
    ("F32", 2560, 512, False),
]


def seconds(run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--peer")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--repeats", type=int, default=7)
    ap.add_argument("--rows", default="1,2,4,8,16,24,64,256")
    ap.add_argument("--isa", default="auto")
    ap.add_argument("--modes", default="auto")
    ap.add_argument("--types", default="")
    ap.add_argument("--best", action="store_true", help="the best of the repeats, for tuning on a busy machine")
    ap.add_argument("--json")
    a = ap.parse_args()
    peer = ggml.Ggml(a.peer) if a.peer else None
    results = []
    for name, k, n, pack in SHAPES:
        if a.types and name not in a.types.split(","):
            continue
        info = cpu_cases.TYPES[name]
        copies = max(1, int(48e6 / (n * k / info.block * info.bytes)))  # more than a cache, as in a model
        raws = [cpu_cases.random_rows(name, n, k, i) for i in range(min(copies, 24))]
        ours = [_core.Product(info.id, r, 0, n, k, isa=a.isa, threads=a.threads, pack=pack) for r in raws]
        for m in map(int, a.rows.split(",")):
            x = cpu_cases.activations(m, k, 1)
            turns = max(1, min(len(raws), int(2e8 / (m * n * k))))
            theirs = {}
            if peer:
                for i, buffer in enumerate([None, *peer.repack_types(name)]):
                    try:
                        theirs[i] = [ggml.Product(peer, info.id, r, n, k, x, a.threads, buffer) for r in raws[:turns]]
                    except OSError:
                        continue
            out = np.empty((m, n), np.float32)
            modes = a.modes.split(",")
            times: dict[str, list[float]] = {key: [] for key in [*modes, *(f"peer{i}" for i in theirs)]}

            def all_ours(mode, x=x, out=out, turns=turns, ours=ours):
                for p in ours[:turns]:
                    p.into(x, out, mode)

            def all_theirs(i, theirs=theirs):
                for p in theirs[i]:
                    p.run()

            for _ in range(a.repeats):
                for mode in modes:
                    times[mode].append(seconds(lambda mode=mode: all_ours(mode)))
                for i in theirs:
                    times[f"peer{i}"].append(seconds(lambda i=i: all_theirs(i)))
            gmac = {
                key: turns * m * n * k / (min(t) if a.best else statistics.median(t)) * 1e-9 * a.threads
                for key, t in times.items()
            }
            row = {
                "type": name,
                "k": k,
                "n": n,
                "packed": pack,
                "rows": m,
                "threads": a.threads,
                **{key: gmac[key] for key in modes},
            }
            line = f"{name:7} {k:5} -> {n:5}{' packed' if pack else '       '} rows {m:4}  " + "  ".join(
                f"{mode} {gmac[mode]:6.1f}" for mode in modes
            )
            if theirs:
                row["peer"] = max(v for key, v in gmac.items() if key.startswith("peer"))
                row["ratio"] = gmac[modes[0]] / row["peer"]
                line += f"  peer {row['peer']:6.1f}  ratio {row['ratio']:.2f}"
            print(line, flush=True)
            results.append(row)
            for products in theirs.values():
                for p in products:
                    p.close()
    if a.json:
        Path(a.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
