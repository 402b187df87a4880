"""Trains the demo model on one GPU.  Run: python train.py OUT_DIR --tok tokenizer.json --bible bible.txt --minutes 7 [--init DIR] [--qat] ...

The learning rate follows the elapsed share of --minutes (warm-up, flat, then linear decay), so a run always ends in time.
Checkpoints are packed (experts int8 with one scale a row, the rest bfloat16) in files of at most 15 MB; `load_packed` reads them.
"""

import argparse, glob, json, math, os, random, time
import multiprocessing as mp
import numpy as np, torch
import torch.nn.functional as F
from tokenizers import Tokenizer
import corpus, model as M


def encode(args):
    tokfile, kind, n, seed = args
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    t = Tokenizer.from_file(tokfile)
    eos = t.token_to_id("<|endoftext|>")
    docs = list(corpus.docs(n, seed)) if kind == "syn" else corpus.bible(n)
    return [np.array(e.ids + [eos], dtype=np.uint16) for e in t.encode_batch(docs)]


def stream(docs, dev):
    starts = np.cumsum([0] + [len(d) for d in docs[:-1]])
    return torch.from_numpy(np.concatenate(docs).astype(np.int32)).to(dev), torch.from_numpy(starts).to(dev)


def batch(st, n, T):
    tok, starts = st
    starts = starts[starts < len(tok) - T - 1] if len(starts) < 5000 else starts[:-2000]
    s = starts[torch.randint(len(starts), (n,), device=tok.device)]
    return tok[s[:, None] + torch.arange(T + 1, device=tok.device)].long()


def save_packed(sd, path):
    os.makedirs(path, exist_ok=True)
    part, size, k = {}, 0, 0

    def flush():
        nonlocal part, size, k
        if part:
            torch.save(part, f"{path}/part{k}.pt")
        part, size, k = {}, 0, k + 1

    for n, v in sd.items():
        if "experts." in n:
            s = v.float().abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127
            p = ((v.float() / s).round().to(torch.int8).cpu(), s.half().cpu())
        else:
            p = v.cpu() if not v.is_floating_point() else v.bfloat16().cpu()
        b = sum(z.numel() * z.element_size() for z in (p if isinstance(p, tuple) else (p,)))
        if size + b > 15e6:
            flush()
        part[n] = p
        size += b
    flush()


def load_packed(path):
    sd = {}
    for f in sorted(glob.glob(f"{path}/part*.pt")):
        sd.update(torch.load(f, map_location="cpu"))
    return {
        n: (v[0].float() * v[1].float() if isinstance(v, tuple) else v.float() if v.is_floating_point() else v)
        for n, v in sd.items()
    }


COMPILED = ("hc_mix", "hc_add", "delta_pre", "delta_post", "delta_chunks")
RAW = {n: getattr(M, n) for n in COMPILED}


def use_compiled(on):
    for n in COMPILED:
        setattr(M, n, torch.compile(RAW[n], dynamic=False) if on else RAW[n])


@torch.no_grad()
def generate(m, tok, prompt, n=80):
    ids = tok.encode(prompt).ids
    out = []
    for _ in range(n):
        with torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.is_available()):
            lg = m(torch.tensor([ids + out], device=next(m.parameters()).device))[0, -1]
        t = lg.argmax().item()
        if t == M.CFG["eos_token_id"]:
            break
        out.append(t)
    return tok.decode(out)


@torch.no_grad()
def routing(m, ids):
    tr = []
    with torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.is_available()):
        m(ids, trace=tr)
    T = ids.shape[1]
    E = M.CFG["num_experts"]
    k = M.CFG["num_experts_per_tok"]
    hit = lambda i, n: (
        torch.stack([torch.zeros(E).scatter_(0, j.reshape(-1).cpu(), 1) for j in i.split(n)]).mean().item()
    )
    for n in (1, 8, 16, 32, 64):
        print(f"experts touched by {n:2d} tokens:", " ".join(f"{hit(t['idx'], n):.2f}" for t in tr))
    print(
        "most popular expert / mean:",
        " ".join(
            f"{np.bincount(t['idx'].reshape(-1).cpu(), minlength=E).max() / (len(t['idx']) * k / E):.1f}" for t in tr
        ),
    )
    print(
        "look-ahead recall per token:",
        " ".join(
            f"{(t['next'].topk(k).indices.unsqueeze(-1) == t['idx'].unsqueeze(1)).any(-1).float().mean():.2f}"
            for t in tr[1:]
        ),
    )


def main():
    ap = argparse.ArgumentParser()
    for n, d in (("tok", "tokenizer.json"), ("bible", None), ("init", None)):
        ap.add_argument("--" + n, default=d)
    ap.add_argument("out")
    ap.add_argument("--minutes", type=float, default=7)
    ap.add_argument("--T", type=int, default=512)
    ap.add_argument("--B", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--docs", type=int, default=40000)
    ap.add_argument("--procs", type=int, default=16)
    ap.add_argument("--look", type=float, default=0.0)
    ap.add_argument("--balance", type=float, default=0.01)
    ap.add_argument("--seed", type=int, default=100)
    ap.add_argument("--warm", type=int, default=200)
    ap.add_argument("--flat", type=float, default=0.4)
    ap.add_argument("--qat", action="store_true")
    ap.add_argument("--eager", action="store_true")
    a = ap.parse_args()
    t0 = time.time()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    with mp.Pool(a.procs) as pool:
        parts = pool.map(
            encode,
            [(a.tok, "syn", a.docs, a.seed + i) for i in range(a.procs)]
            + [(a.tok, "syn", 3000, 7)]
            + [(a.tok, "bible", a.bible, 0)] * bool(a.bible),
            chunksize=1,
        )
    bib = parts.pop() if a.bible else None
    held = parts.pop()
    syn = stream([d for p in parts for d in p], dev)
    hs = [stream(held, dev)]
    if a.bible:
        hs.append(stream(bib[::40], dev))
        bib = stream([d for i, d in enumerate(bib) if i % 40], dev)
    tok = Tokenizer.from_file(a.tok)
    print(
        f"data ready {time.time() - t0:.0f} s: {len(syn[0]) / 1e6:.1f} M synthetic, {len(bib[0]) / 1e6 if bib else 0:.1f} M Bible tokens",
        flush=True,
    )
    m = M.Model().to(dev)
    if a.init:
        m.load(load_packed(a.init))
    if a.qat:
        import quant

        m.quant = quant.Fake(dev)
    print(
        "parameters (millions):",
        sum(p.numel() for p in m.parameters()) / 1e6,
        "experts",
        sum(p.numel() for n, p in m.p.items() if "experts" in n) / 1e6,
    )
    dec = [p for n, p in m.p.items() if p.dim() > 1 and "embed" not in n and "conv" not in n]
    ids = {id(p) for p in dec}
    opt = torch.optim.AdamW(
        [
            dict(params=dec, weight_decay=0.05),
            dict(params=[p for p in m.parameters() if id(p) not in ids], weight_decay=0.0),
        ],
        lr=a.lr,
        betas=(0.9, 0.95),
        fused=dev == "cuda",
    )
    auto = lambda: torch.autocast("cuda", torch.bfloat16, enabled=dev == "cuda")

    def evaluate():
        with torch.no_grad(), auto():
            g = torch.random.get_rng_state()
            torch.manual_seed(5)
            r = []
            for st in hs:
                x = batch(st, a.B, a.T)
                r.append(F.cross_entropy(m(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten()).item())
            torch.random.set_rng_state(g)
            return r

    if not a.eager:
        use_compiled(True)
    if a.init:
        qz, m.quant = m.quant, None
        print("held-out loss before:", evaluate(), flush=True)
        m.quant = qz
        if qz:
            print("and with quantised experts:", evaluate(), flush=True)
    t1 = time.time()
    step = 0
    nb = a.B // 8 if a.bible else 0
    while True:
        frac = (time.time() - t0) / (a.minutes * 60)
        if frac >= 1:
            break
        lr = a.lr * min(1, (step + 1) / a.warm) * min(1, (1 - frac) / (1 - a.flat) + 0.02)
        for g in opt.param_groups:
            g["lr"] = lr
        x = torch.cat([batch(syn, a.B - nb, a.T)] + ([batch(bib, nb, a.T)] if nb else []))
        aux = dict(balance=[], look=[], index=[])
        with auto():
            lg = m(x[:, :-1], aux)
        ce = F.cross_entropy(lg.float().flatten(0, 1), x[:, 1:].flatten())
        bal, look, ind = (sum(aux[k]) / max(1, len(aux[k])) for k in ("balance", "look", "index"))
        (ce + a.balance * bal + a.look * look + 0.1 * ind).backward()
        nrm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step in (1, 2, 10, 50) or step % 200 == 0:
            bal, look, ind = (float(z.detach()) if torch.is_tensor(z) else z for z in (bal, look, ind))
            print(
                f"step {step} {time.time() - t0:.0f} s  {step * a.B * a.T / (time.time() - t1) / 1e3:.0f} k tok/s  ce {ce.item():.3f} balance {bal:.3f} look {look:.3f} index {ind:.3f} grad {nrm.item():.2f} lr {lr:.2e}",
                flush=True,
            )
    if a.qat:
        m.quant.frozen = True
    print(
        f"{step} steps, {step * a.B * a.T / 1e6:.0f} M tokens; held-out loss (synthetic[, Bible]):",
        evaluate(),
        flush=True,
    )
    save_packed(m.state(), a.out)
    if a.qat:
        m.quant.save(m, a.out)
    use_compiled(False)
    routing(m, torch.cat([h[0][:1024] for h in hs]).long()[None])
    for p in (
        "Once upon a time",
        "Question: What is the capital of France?\nAnswer:",
        "Question: What is 7 + 8?\nAnswer:",
        "Question: Tell me a story about a fox who lost a kite.\nAnswer:",
        "Question: What is the opposite of hot?\nAnswer:",
        "Tom has a red ball and is in the park. Anna has a blue kite and is on the hill.\nQuestion: Who has the kite?\nAnswer:",
    ):
        print(repr(p), "->", repr(generate(m, tok, p, 90)), flush=True)
    print(
        f"done {time.time() - t0:.0f} s; device memory {torch.cuda.max_memory_allocated() / 1e9 if dev == 'cuda' else 0:.1f} GB"
    )


if __name__ == "__main__":
    main()
