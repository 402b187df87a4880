"""Makes prompts.json, heldout.txt, routing.npz and stats.json for a finished GGUF.

Run:  python make_files.py demo.gguf tokenizer.json OUT_DIR LLAMA_BIN_DIR [full-precision checkpoint folder]
Needs transformers (with qwen4_exp), torch, tokenizers, the scripts in tests/oracle, and llama.cpp's llama-completion and llama-perplexity.
"""

import json, os, random, re, subprocess, sys
import numpy as np, torch
import torch.nn.functional as F
from tokenizers import Tokenizer

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "tests", "oracle"))
import corpus, make_oracle, model as M
from train import load_packed
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

Q = lambda q: f"Question: {q}\nAnswer:"
PROMPTS = [
    "Once upon a time",
    "Long ago, a clever fox",
    Q("Tell me a story about a cat who was afraid."),
    Q("Tell me a story about Lily who lost a kite."),
    Q("What is the capital of Japan?"),
    Q("What is 12 + 5?"),
    Q("Why is the sky blue?"),
    Q("What are the days of the week?"),
    Q("Which is bigger, a mouse or an elephant?"),
    Q("What does a baker do?"),
    Q("Who are you?"),
    "Tom has a red ball and is in the park. Anna has a blue kite and is on the hill. Ben has a green hat and is by the lake.\n"
    + Q("Who has the kite?"),
]


def load_gguf(path):
    class Tied(make_oracle.gguf_io.GGUF):
        def __init__(s, p):
            super().__init__(p)
            s.tensors.setdefault("output.weight", s.tensors["token_embd.weight"])

    real, make_oracle.gguf_io.GGUF = make_oracle.gguf_io.GGUF, Tied
    hf = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**M.CFG)).float().eval()
    make_oracle.load_back(hf, path)
    make_oracle.gguf_io.GGUF = real
    m = M.Model().eval()
    m.load(hf.state_dict())
    return hf, m


def nll(m, ids):
    lg = m(torch.tensor([ids])).float()[0]
    return F.cross_entropy(lg[:-1], torch.tensor(ids[1:]), reduction="none")


def windows(m, ids, n=512):
    """llama-perplexity's rule: whole windows of n tokens, the second half of each is scored."""
    return float(torch.cat([nll(m, ids[i : i + n])[n // 2 :] for i in range(0, len(ids) - n + 1, n)]).mean().exp())


def accuracy(m, tok, docs):
    """Share of answers whose every token is the arg max given the right text so far: what greedy decoding would give word for word."""
    eos = M.CFG["eos_token_id"]
    rows = []
    for d in docs:
        p, a = d.rsplit("\nAnswer:", 1)
        p = tok.encode(p + "\nAnswer:").ids
        rows.append((p, tok.encode(a).ids + [eos]))
    hit = []
    for i in range(0, len(rows), 100):
        r = rows[i : i + 100]
        T = max(len(p) + len(a) for p, a in r)
        x = torch.tensor([p + a + [eos] * (T - len(p) - len(a)) for p, a in r])
        g = m(x).argmax(-1)
        hit += [
            tok.decode(g[j, len(p) - 1 : len(p) + len(a) - 2].tolist()).strip() == tok.decode(a[:-1]).strip()
            for j, (p, a) in enumerate(r)
        ]  # the full stop may be the token with a line end
    return sum(hit) / len(hit), len(hit), [docs[i] for i, h in enumerate(hit) if not h][:6]


@torch.no_grad()
def main(gguf, tokfile, out, llama, full=None):
    torch.set_num_threads(1)
    os.makedirs(out, exist_ok=True)
    tok = Tokenizer.from_file(tokfile)
    eos = M.CFG["eos_token_id"]
    hf, m = load_gguf(gguf)
    st = {}

    def note():
        json.dump(st, open(f"{out}/stats.json", "w"), indent=1)

    # prompts: llama.cpp's greedy text; the own float32 forward then says how sure each choice was
    res = []
    for p in PROMPTS:
        t = subprocess.run(
            [
                f"{llama}/llama-completion",
                "-m",
                gguf,
                "-p",
                p,
                "-n",
                "200",
                "--temp",
                "0",
                "-no-cnv",
                "-t",
                "1",
                "--no-warmup",
            ],
            capture_output=True,
            text=True,
        ).stdout
        end = "[end of text]" in t
        t = t.split("[end of text]")[0] if end else t.rstrip("\n")
        t = t.strip("\n")[len(p) :]
        t = t[:-1] if end and t.endswith(" ") else t
        x = tok.encode(p).ids
        g = tok.encode(p + t).ids[len(x) :] + [eos] * end
        v = m(torch.tensor([x + g]))[0, len(x) - 1 : -1]
        two = v.topk(2).values
        res.append(
            {
                "prompt": p,
                "prompt_ids": x,
                "text": t,
                "ids": g,
                "ends": end,
                "float32_argmax_agrees": round(float((v.argmax(-1) == torch.tensor(g)).float().mean()), 4),
                "smallest_float32_gap": round(float((two[:, 0] - two[:, 1]).min()), 4),
            }
        )
        print(res[-1]["float32_argmax_agrees"], repr(p[-50:]), "->", repr(t[:300]), flush=True)
    json.dump(
        {
            "model": os.path.basename(gguf),
            "rule": "greedy, at most 200 new tokens, stops at <|endoftext|>; text from llama.cpp on this file (it rounds activations to 8 bits, so a choice with a small float32 gap may differ elsewhere)",
            "prompts": res,
        },
        open(f"{out}/prompts.json", "w"),
        indent=1,
    )
    docs, ids = [], []
    for d in corpus.docs(400, 7):
        if len(ids) >= 2000:
            break
        docs.append(d)
        ids += tok.encode(d).ids + [eos]
    open(f"{out}/heldout.txt", "w").write("\n".join(docs) + "\n")
    flat = tok.encode(open(f"{out}/heldout.txt").read()).ids
    a, b = m(torch.tensor([ids[:200]])), hf(torch.tensor([ids[:200]])).logits
    st["max_logit_difference_own_forward_vs_transformers_200_tokens"] = float((a - b).abs().max())
    st["heldout"] = {
        "documents": len(docs),
        "tokens_with_endoftext": len(ids),
        "perplexity_one_pass_with_endoftext": float(nll(m, ids).mean().exp()),
        "tokens_plain": len(flat),
        "perplexity_windows_512_plain": windows(m, flat),
    }
    if full:
        f = M.Model().eval()
        f.load(load_packed(full))
        st["heldout"]["full_precision_before_qat"] = {
            "perplexity_one_pass_with_endoftext": float(nll(f, ids).mean().exp()),
            "perplexity_windows_512_plain": windows(f, flat),
        }
    r = subprocess.run(
        [f"{llama}/llama-perplexity", "-m", gguf, "-f", f"{out}/heldout.txt", "-c", "512", "-b", "512", "-t", "1"],
        capture_output=True,
        text=True,
    )
    z = re.search(r"Final estimate: PPL = ([\d.]+)", r.stdout + r.stderr)
    st["heldout"]["perplexity_llama.cpp_c512"] = float(z[1]) if z else None
    # routing trace
    tr, m.probe = [], []
    m(torch.tensor([ids]), trace=tr)
    probe, m.probe = m.probe, None
    k, E = M.CFG["num_experts_per_tok"], M.CFG["num_experts"]
    T = len(ids)
    idx = torch.stack([t["idx"] for t in tr])
    nxt = torch.stack([t["next"].topk(k).indices for t in tr[1:]])
    np.savez_compressed(
        f"{out}/routing.npz",
        tokens=np.array(ids, np.uint16),
        ids=idx.numpy().astype(np.uint8),
        weights=torch.stack([t["w"] for t in tr]).numpy().astype(np.float16),
        predicted=nxt.numpy().astype(np.uint8),
    )
    one = lambda i: torch.zeros(*i.shape[:-2], E).scatter_(-1, i.flatten(-2), 1) > 0
    cut = lambda z, n: z[:, : T // n * n].reshape(z.shape[0], -1, n, k)
    mean = lambda z, d=3: [round(float(v), d) for v in z]
    st["share_of_experts_touched_by_chunk"] = {
        n: mean(one(cut(idx, n)).float().mean((1, 2))) for n in (1, 8, 16, 32, 64, 128)
    }
    cnt = torch.stack([torch.bincount(i.flatten(), minlength=E) for i in idx]).float() / (T * k / E)
    p = cnt / E
    st["popularity"] = {
        "most_used_over_mean": mean(cnt.max(1).values, 2),
        "least_used_over_mean": mean(cnt.min(1).values, 2),
        "entropy_over_uniform": mean(-(p * p.clamp_min(1e-9).log()).sum(1) / np.log(E)),
    }
    same = (idx[:, 1:].unsqueeze(-1) == idx[:, :-1].unsqueeze(-2)).any(-1).float().mean((1, 2))
    st["share_of_experts_kept_from_the_previous_token"] = mean(same)
    la = {"per_token_recall": mean((idx[1:].unsqueeze(-1) == nxt.unsqueeze(-2)).any(-1).float().mean((1, 2)))}
    for n in (8, 32, 128, 512):
        A, P = one(cut(idx[1:], n)), one(cut(nxt, n))
        la[f"distinct_chunk_{n}"] = {
            "recall": mean((A & P).sum((1, 2)) / A.sum((1, 2))),
            "precision": mean((A & P).sum((1, 2)) / P.sum((1, 2))),
        }
    st["look_ahead_layers_1_to_7"] = la
    top = M.CFG["indexer_budget"] // M.CFG["indexer_compress_ratio"]
    tie, tot = 0, 0
    for s in probe:
        v = s[0][s[0][:, top] > -1e8].sort(-1, descending=True).values
        tie += int((v[:, top - 1] == v[:, top]).sum())
        tot += len(v)
    st["sparse_attention"] = {"rows_with_more_blocks_than_the_budget": tot, "rows_where_the_cut_is_a_tie": tie}
    note()
    rng = random.Random(11)
    qs = []
    while len(qs) < 150:
        q, an = corpus.qa_items(rng)
        if not q.startswith("Name three"):
            qs.append(f"Question: {q}\nAnswer: {an}")
    acc, n, bad = accuracy(m, tok, qs)
    st["questions_answered_word_for_word"] = {"share": acc, "of": n, "missed": bad}
    rc = [d for d in (corpus.recall(rng) for _ in range(200)) if d.count("Question:") == 1][:60]
    acc, n, bad = accuracy(m, tok, rc)
    st["short_passage_questions"] = {"share": acc, "of": n, "missed": bad}
    json.dump(st, open(f"{out}/stats.json", "w"), indent=1)
    print(json.dumps(st, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
