"""Compare an engine's outputs with the goldens of this folder and name the first place where they part.

A folder of outputs, one file <case>.npz per prompt of prompts.json with the arrays
    logits [T, vocab] (or only the rows of <case>/positions), optional greedy [16], optional intermediates (README.md)
    python check.py MODEL FOLDER [--int8] [--partial]
or a Python callable:
    import check
    check.check_callable("tiny-f32", fn)       # fn(ids, n_new) -> {"logits": [T, V], "greedy": [...], "taps": {...}}
Returns / exits with the number of failed prompts. A prompt, a greedy continuation or intermediates that are missing
count as failures unless --partial (partial=True) is given. --int8: limits for engines that quantise activations.
"""

import argparse
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
LOGIT_TOL = 2e-4  # absolute, float32 activations
TAP_TOL = 1e-4  # times max(1, largest golden value)
TIE = 1e-6  # a smaller gap between chosen and not chosen makes a position ambiguous
INT8_KL, INT8_TOP1 = 0.005, 0.85  # top-1 agreement only where 20 positions or more are compared
INT8_TAP = 0.25  # relative rms error of an intermediate


def models():
    return sorted(f[:-4] for f in os.listdir(os.path.join(DATA, "goldens")) if f.endswith(".npz"))


def prompts():
    with open(os.path.join(DATA, "prompts.json")) as f:
        return json.load(f)


def load(name):
    return np.load(os.path.join(DATA, "goldens", name + ".npz"))


def tap_order(keys):
    """Keys of one prompt in the order in which a forward pass makes them."""
    stage = [
        "ple_rows",
        "ple_out",
        "res_ple",
        "qsa_blocks",
        "S",
        "mix_out",
        "res_mix",
        "moe_in",
        "router_ids",
        "router_weights",
        "moe_out",
        "res_moe",
    ]

    def rank(k):
        if k == "final":
            return (1 << 20, 0)
        layer, _, s = k.rpartition("/")
        return (int(layer[1:]) if layer else -1, stage.index(s))

    return sorted(keys, key=rank)


def kl(a, b):
    """Mean KL divergence of softmax(b) from softmax(a)."""
    la = a - a.max(-1, keepdims=True)
    lb = b - b.max(-1, keepdims=True)
    la = la - np.log(np.exp(la).sum(-1, keepdims=True))
    lb = lb - np.log(np.exp(lb).sum(-1, keepdims=True))
    return float((np.exp(la) * (la - lb)).sum(-1).mean())


def first_ambiguous(g, case, T):
    """First position from which a result may differ without an error; T if there is none."""
    if "by_rule" in g:
        return T
    p = T
    for key in ("router_gap", "qsa_gap"):
        if f"{case}/{key}" in g:
            bad = np.nonzero(g[f"{case}/{key}"] < TIE)[0]
            p = min(p, int(bad[0])) if len(bad) else p
    return p


def compare_taps(g, case, taps, limit, int8=False):
    """Returns a line about the first intermediate that differs, or None. With int8 only gross errors count: a
    relative rms error above INT8_TAP, or less than 80 % of the chosen experts or blocks in common."""
    pre = case + "/"
    skip = {"positions", "logits", "logits_err", "greedy", "router_gap", "qsa_gap", "tap_positions"}
    keys = [k[len(pre) :] for k in g.files if k.startswith(pre) and k[len(pre) :] not in skip]
    if not keys:
        return None
    keep = g[pre + "tap_positions"]
    for k in tap_order(keys):
        if k not in taps:
            continue
        want, have = g[pre + k], np.asarray(taps[k])
        if k.endswith("/S"):
            if limit < len(g[pre + "router_gap"]):
                continue
            pos = None
        elif k.endswith(("qsa_blocks", "router_ids", "ple_rows")):
            pos = np.arange(len(want))
        else:
            pos = keep
            if len(have) != len(keep):
                have = have[keep]
        if want.shape != have.shape:
            return f"{k}: shape {have.shape}, expected {want.shape}"
        if k.endswith("router_ids"):  # a set: the order is free
            want, have = np.sort(want, -1), np.sort(have, -1)
        if k.endswith("router_weights"):
            want, have = -np.sort(-want, -1), -np.sort(-have, -1)
        if pos is not None:
            want, have, pos = want[pos < limit], have[pos < limit], pos[pos < limit]
        if not len(want):
            continue
        d = np.abs(want.astype(np.float64) - have.astype(np.float64))
        if int8 and not k.endswith("ple_rows"):
            if k.endswith("router_weights"):
                continue
            if k.endswith("router_ids"):
                same = np.mean([len(set(x) & set(y)) / len(x) for x, y in zip(want, have, strict=True)])
            elif k.endswith("qsa_blocks"):
                same = (want & (have > 0)).sum() / max(1, want.sum())
            else:
                e = float(np.sqrt((d**2).mean() / (want.astype(np.float64) ** 2).mean()))
                if not e <= INT8_TAP:
                    return f"{k}: relative error {e:.2f}"
                continue
            if same < 0.8:
                return f"{k}: only {same:.0%} in common"
            continue
        tol = 0 if want.dtype.kind in "ib" else TAP_TOL * max(1.0, float(np.abs(want).max()))
        if not (d <= tol).all():  # also catches NaN
            row = int(np.argwhere(~(d <= tol))[0][0])
            where = f"position {pos[row]}" if pos is not None else f"head {row}"
            return f"{k}: {where}, difference {np.nanmax(d):.2e}"
    return None


def check_case(name, case, got, int8=False, g=None, partial=False):
    """Returns (ok, line)."""
    g = g if g is not None else load(name)
    T = len(prompts()[case])
    limit = first_ambiguous(g, case, T)
    pos, want = g[case + "/positions"], g[case + "/logits"].astype(np.float64)
    have = np.asarray(got["logits"], np.float64)
    if len(have) == T:
        have = have[pos]
    if have.shape != want.shape:
        return False, f"logits have shape {have.shape}, expected {want.shape} or {T} rows"
    m = pos < limit
    d = np.abs(have - want)[m]
    div, top1 = kl(want[m], have[m]), float((have[m].argmax(-1) == want[m].argmax(-1)).mean())
    line = f"max |d logit| {d.max():.1e}  mean KL {div:.1e}  top-1 {top1:.3f}"
    ok = (div <= INT8_KL and (top1 >= INT8_TOP1 or m.sum() < 20)) if int8 else bool((d <= LOGIT_TOL).all())
    if not np.isfinite(have).all():
        ok, line = False, line + "  not finite"
    if limit < T:
        line += f"  (positions from {limit} on are ambiguous and not compared)"
    if not partial and limit == T:
        missing = [k for k in ("greedy",) if not int8 and got.get(k) is None]
        if f"{case}/tap_positions" in g and not got.get("taps"):
            missing.append("intermediates")
        if missing:
            ok, line = False, line + "  MISSING " + ", ".join(missing)
    if not int8 and got.get("greedy") is not None and limit == T:
        gr = [int(v) for v in got["greedy"]]
        w = g[case + "/greedy"].tolist()[: len(gr)]
        if gr != w:
            ok = False
            line += f"  greedy differs at {next(i for i, (x, y) in enumerate(zip(gr, w, strict=False)) if x != y)}"
    if got.get("taps"):
        t = compare_taps(g, case, got["taps"], limit, int8)
        if t:
            ok, line = False, line + f"  FIRST DIVERGENCE {t}"
    return ok, line


def check_callable(name, fn, int8=False, verbose=True, cases=None, partial=False):
    g, bad = load(name), 0
    for case, ids in prompts().items():
        if cases and case not in cases:
            continue
        ok, line = check_case(name, case, fn(ids, len(g[case + "/greedy"])), int8, g, partial)
        bad += not ok
        if verbose:
            print(f"{'ok  ' if ok else 'FAIL'} {name:18s} {case:6s} {line}", flush=True)
    return bad


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("folder")
    ap.add_argument("--int8", action="store_true")
    ap.add_argument("--partial", action="store_true", help="do not fail on prompts or arrays that are missing")
    a = ap.parse_args()
    if a.model not in models():
        sys.exit(f"unknown model {a.model}; there are {', '.join(models())}")
    bad, seen = 0, 0
    for case in prompts():
        p = os.path.join(a.folder, case + ".npz")
        if not os.path.exists(p):
            if not a.partial:
                bad += 1
                print(f"FAIL {a.model:18s} {case:6s} MISSING {case}.npz")
            continue
        seen += 1
        z = np.load(p)
        got = {
            "logits": z["logits"],
            "greedy": z["greedy"] if "greedy" in z.files else None,
            "taps": {k: z[k] for k in z.files if k not in ("logits", "greedy")},
        }
        ok, line = check_case(a.model, case, got, a.int8, partial=a.partial)
        bad += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {a.model:18s} {case:6s} {line}")
    if not seen:
        print("no outputs found")
    sys.exit(bad if seen else 1)


if __name__ == "__main__":
    main()
