"""Forward pass of `qwen4exp` in numpy, from a GGUF file, written from docs/file-format.md alone.

It favours clearness over speed: weights are decoded to float once, tokens go through the delta-net one by one.

    python reference.py                      # every model of this folder against its goldens
    python reference.py tiny-f32.gguf        # one model
    python reference.py --f64 --chunks 1,7,64 tiny-f32.gguf

As a module: m = Model(path, np.float64); st = m.state(); logits = m.forward(ids, st)   # [T, vocab]
`taps` (a dict) receives intermediates under the same names as the goldens (README.md).
"""

import argparse
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
sys.path.insert(0, HERE)
import gguf_io  # noqa: E402


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def top_k(v, k):
    """Indices of the k largest, larger value first, lower index first among equals."""
    return np.argsort(-v, axis=-1, kind="stable")[..., :k]


class Model:
    def __init__(self, path, dtype=np.float32):
        self.g = g = gguf_io.GGUF(path)
        self.dt = dtype
        if g.kv["general.architecture"] != "qwen4exp":
            raise ValueError("not a qwen4exp file")
        kv = lambda k, d=None: g.kv.get("qwen4exp." + k, d)  # noqa: E731
        self.L = kv("block_count") - kv("nextn_predict_layers", 0)  # draft-head blocks are not layers
        self.H = kv("embedding_length")
        self.eps = dtype(kv("attention.layer_norm_rms_epsilon"))
        self.nh = kv("attention.head_count")
        self.nkv = kv("attention.head_count_kv", self.nh)
        self.hd = kv("attention.key_length", self.H // self.nh)
        self.n_rot = kv("rope.dimension_count", self.hd)
        self.theta = kv("rope.freq_base", 10000.0)
        self.n_used = kv("expert_used_count")
        self.hc = kv("hyper_connection.count")
        self.conv_k = kv("ssm.conv_kernel")
        self.ds = kv("ssm.state_size")
        self.nk, self.nv = kv("ssm.group_count"), kv("ssm.time_step_rank")
        n = kv("full_attention_interval", 4)
        self.linear = kv("attention.recurrent_layers") or [(i + 1) % n != 0 for i in range(self.L)]
        self.ih, self.id = kv("attention.indexer.head_count"), kv("attention.indexer.key_length")
        self.budget = kv("attention.indexer.top_k")
        ratios = kv("attention.compress_ratios", [0] * self.L)
        self.ratio = ratios if isinstance(ratios, list) else [ratios] * self.L
        self.ple = kv("ple.layers") or []
        if self.ple:
            self.ng, self.hpn = kv("ple.ngram_size"), kv("ple.heads_per_ngram")
            self.ple_k, self.ple_eos = kv("ple.conv_kernel"), kv("ple.eos_token_id")
            self.mult = [int(v) for v in kv("ple.layer_multipliers")]
            self.off, self.voc = kv("ple.head_offsets"), kv("ple.head_vocab_sizes")
        self.w = {}

    def t(self, name):
        if name not in self.w:
            self.w[name] = self.g.tensors[name].f32().astype(self.dt)
        return self.w[name]

    def mm(self, x, name):  # every matrix is [out, in]
        return x @ self.t(name).T

    def rms(self, x, gain=None):
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return y if gain is None else y * gain

    # ------------------------------------------------------------ state
    def state(self):
        z = lambda *s: np.zeros(s, self.dt)  # noqa: E731
        st = {"pos": 0, "layers": []}
        for i in range(self.L):
            if self.linear[i]:
                c = 2 * self.nk * self.ds + self.nv * self.ds
                s = {"conv": z(self.conv_k - 1, c), "S": z(self.nv, self.ds, self.ds)}
                if i in self.ple:
                    s["ids"] = [self.ple_eos] * (self.ng - 1)
                    s["ple_conv"] = z((self.ple_k - 1) * self.ng, self.hc * self.H)
            else:
                s = {"k": z(0, self.nkv, self.hd), "v": z(0, self.nkv, self.hd), "ik": z(0, self.id)}
            st["layers"].append(s)
        return st

    # ------------------------------------------------------------ parts
    def mix(self, R, pre):  # R [T, hc, H]
        T = R.shape[0]
        g = self.t(pre + "_norm.weight").reshape(self.hc, self.H)
        n = self.rms(R, g)
        flat = n.reshape(T, -1)
        a = silu(self.mm(flat, pre + "_down.weight") / self.hc)
        a = sigmoid(self.mm(a, pre + "_up.weight")).reshape(T, self.hc, self.H)
        return (a * n).mean(1), flat

    def combine(self, R, out, flat, pre):
        w = 2 * sigmoid(self.mm(flat, pre + "_inject.weight") / self.hc)
        return R + w[:, :, None] * out[:, None, :]

    def rope(self, x, pos):  # x [..., dim]; pos broadcastable to x[..., 0]
        h = self.n_rot // 2
        f = (np.float64(self.theta) ** (-2.0 * np.arange(h) / self.n_rot)).astype(self.dt)
        a = np.asarray(pos, self.dt)[..., None] * f
        c, s = np.cos(a), np.sin(a)
        y = x.copy()
        y[..., :h] = x[..., :h] * c - x[..., h : 2 * h] * s
        y[..., h : 2 * h] = x[..., h : 2 * h] * c + x[..., :h] * s
        return y

    def ple_rows(self, ids, s):
        """Row numbers of the n-gram table, [T, heads]."""
        hist = list(s["ids"]) + [int(i) for i in ids]
        n, out, m64 = self.ng, [], (1 << 64) - 1
        for p in range(n - 1, len(hist)):
            ctx, cut = [hist[p]], False
            for j in range(1, n):
                cut = cut or hist[p - j] == self.ple_eos
                ctx.append(self.ple_eos if cut else hist[p - j])
            row = []
            for order in range(2, n + 1):
                h = 0
                for j in range(order):
                    h ^= (ctx[j] * self.mult[j]) & m64
                for e in range(self.hpn):
                    q = (order - 2) * self.hpn + e
                    row.append(h % self.voc[q] + self.off[q])
            out.append(row)
        s["ids"] = hist[len(hist) - (n - 1) :]
        return np.array(out, np.int64)

    def ple_block(self, R, ids, s, i, taps):
        b, T = f"blk.{i}.", R.shape[0]
        shape = (self.hc, self.H)
        rows = self.ple_rows(ids, s)
        e = self.t("per_layer_token_embd.weight")[rows].reshape(T, -1)
        key = self.mm(e, b + "ple_key.weight").reshape(T, *shape)
        val = self.mm(e, b + "ple_value.weight")
        key = self.rms(key, self.t(b + "ple_norm_key.weight").reshape(shape))
        qry = self.rms(R, self.t(b + "ple_norm_query.weight").reshape(shape))
        d = (key * qry).sum(-1) / np.sqrt(self.dt(self.H))
        gate = sigmoid(np.sign(d) * np.sqrt(np.maximum(np.abs(d), self.dt(1e-6))))
        gv = gate[:, :, None] * val[:, None, :]
        x = self.rms(gv, self.t(b + "ple_norm_conv.weight").reshape(shape)).reshape(T, -1)
        full = np.concatenate([s["ple_conv"], x])
        s["ple_conv"] = full[len(full) - len(s["ple_conv"]) :]
        w = self.t(b + "ple_conv1d.weight")  # [channels, K]
        y = sum(w[:, k] * full[k * self.ng : k * self.ng + T] for k in range(self.ple_k))
        out = gv + silu(y).reshape(T, *shape)
        taps["ple_rows"], taps[f"L{i}/ple_out"] = rows, out.reshape(T, -1)
        return R + out

    def delta_net(self, x, s, i, taps):
        b, T, ds, nk, nv = f"blk.{i}.", x.shape[0], self.ds, self.nk, self.nv
        full = np.concatenate([s["conv"], self.mm(x, b + "attn_qkv.weight")])
        s["conv"] = full[len(full) - (self.conv_k - 1) :]
        w = self.t(b + "ssm_conv1d.weight")
        c = silu(sum(w[:, k] * full[k : k + T] for k in range(self.conv_k)))
        q, k = c[:, : nk * ds].reshape(T, nk, ds), c[:, nk * ds : 2 * nk * ds].reshape(T, nk, ds)
        v = c[:, 2 * nk * ds :].reshape(T, nv, ds)
        l2 = lambda a: a / np.sqrt((a * a).sum(-1, keepdims=True) + self.dt(1e-6))  # noqa: E731
        head = np.arange(nv) % nk  # key head of a value head
        q, k = l2(q)[:, head] / np.sqrt(self.dt(ds)), l2(k)[:, head]
        beta = sigmoid(self.mm(x, b + "ssm_beta.weight"))
        decay = np.exp(self.t(b + "ssm_a") * softplus(self.mm(x, b + "ssm_alpha.weight") + self.t(b + "ssm_dt.bias")))
        S, o = s["S"].copy(), np.empty((T, nv, ds), self.dt)  # S [head, key dim, value dim]
        for t in range(T):
            S *= decay[t][:, None, None]
            d = (v[t] - np.einsum("hk,hkv->hv", k[t], S)) * beta[t][:, None]
            S += k[t][:, :, None] * d[:, None, :]
            o[t] = np.einsum("hk,hkv->hv", q[t], S)
        s["S"] = S
        taps[f"L{i}/S"] = S
        z = self.mm(x, b + "attn_gate.weight").reshape(T, nv, ds)
        o = self.rms(o, self.t(b + "ssm_norm.weight")) * sigmoid(z)
        return self.mm(o.reshape(T, -1), b + "ssm_out.weight")

    def visible(self, x, ik, pos, i, taps):
        """Boolean [T, n] of the positions each query may see, chosen by the indexer."""
        b, T, r, n = f"blk.{i}.", x.shape[0], self.ratio[i], ik.shape[0]
        ok = np.arange(n)[None, :] <= pos[:, None]
        nb = n // r
        if r == 0 or nb == 0:
            return ok
        q = self.rms(
            self.mm(x, b + "indexer.q_proj.weight").reshape(T, self.ih, self.id), self.t(b + "indexer.q_norm.weight")
        )
        q = self.rope(q, pos[:, None])
        kb = ik[: nb * r].reshape(nb, r, self.id).mean(1)  # mean, then norm, then rope
        kb = self.rope(self.rms(kb, self.t(b + "indexer.k_norm.weight")), np.arange(nb) * r)
        score = np.maximum(np.einsum("thd,bd->thb", q, kb), 0).sum(1) / np.sqrt(self.dt(self.id))
        K = self.budget // r
        blocks = np.zeros((T, nb), bool)
        gap = np.full(T, np.inf)
        for t in range(T):
            done = (pos[t] + 1) // r  # complete blocks for this query
            sel = top_k(score[t, :done], K)
            blocks[t, sel] = True
            if done > K:
                o = np.sort(score[t, :done])[::-1]
                gap[t] = o[K - 1] - o[K]
        taps[f"L{i}/qsa_blocks"], taps[f"L{i}/qsa_gap"] = blocks, gap
        see = np.zeros((T, n), bool)
        see[:, : nb * r] = np.repeat(blocks, r, 1)
        tail = np.arange(n)[None, :] >= ((pos + 1) // r * r)[:, None]
        return ok & (see | tail)

    def attention(self, x, s, pos, i, taps):
        b, T, nh, nkv, hd = f"blk.{i}.", x.shape[0], self.nh, self.nkv, self.hd
        if self.ratio[i]:
            s["ik"] = np.concatenate([s["ik"], self.mm(x, b + "indexer.k_proj.weight")])  # raw keys
        qg = self.mm(x, b + "attn_q.weight").reshape(T, nh, 2, hd)
        q, gate = qg[:, :, 0], qg[:, :, 1].reshape(T, -1)
        q = self.rope(self.rms(q, self.t(b + "attn_q_norm.weight")), pos[:, None])
        k = self.rms(self.mm(x, b + "attn_k.weight").reshape(T, nkv, hd), self.t(b + "attn_k_norm.weight"))
        s["k"] = np.concatenate([s["k"], self.rope(k, pos[:, None])])
        s["v"] = np.concatenate([s["v"], self.mm(x, b + "attn_v.weight").reshape(T, nkv, hd)])
        n = len(s["k"])
        see = self.visible(x, s["ik"], pos, i, taps) if self.ratio[i] else np.arange(n)[None, :] <= pos[:, None]
        out = np.empty((T, nh, hd), self.dt)
        for h in range(nh):
            kv = h // (nh // nkv)
            a = q[:, h] @ s["k"][:, kv].T / np.sqrt(self.dt(hd))
            a = np.where(see, a, -np.inf)
            a = np.exp(a - a.max(-1, keepdims=True))
            out[:, h] = (a / a.sum(-1, keepdims=True)) @ s["v"][:, kv]
        return self.mm(out.reshape(T, -1) * sigmoid(gate), b + "attn_output.weight")

    def moe(self, x, i, taps):
        b = f"blk.{i}."
        lg = self.mm(x, b + "ffn_gate_inp.weight")
        p = np.exp(lg - lg.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        ids = top_k(p, self.n_used)
        w = np.take_along_axis(p, ids, -1)
        srt = -np.sort(-p, -1)
        taps[f"L{i}/router_gap"] = (
            srt[:, self.n_used - 1] - srt[:, self.n_used] if p.shape[1] > self.n_used else np.full(len(p), np.inf)
        )
        w = w / w.sum(-1, keepdims=True)
        taps[f"L{i}/router_ids"], taps[f"L{i}/router_weights"] = ids, w
        out = np.zeros_like(x)
        G, U, D = (self.t(b + f"ffn_{n}_exps.weight") for n in ("gate", "up", "down"))
        for e in np.unique(ids):
            rows, slot = np.nonzero(ids == e)
            xe = x[rows]
            out[rows] += ((silu(xe @ G[e].T) * (xe @ U[e].T)) @ D[e].T) * w[rows, slot][:, None]
        sh = silu(self.mm(x, b + "ffn_gate_shexp.weight")) * self.mm(x, b + "ffn_up_shexp.weight")
        sh = self.mm(sh, b + "ffn_down_shexp.weight")
        return out + sigmoid(x @ self.t(b + "ffn_gate_inp_shexp.weight").reshape(-1))[:, None] * sh

    # ------------------------------------------------------------ whole pass
    def forward(self, ids, st, taps=None, logits=True):
        taps = {} if taps is None else taps
        ids = np.asarray(ids, np.int64)
        T = len(ids)
        pos = st["pos"] + np.arange(T)
        x = self.t("token_embd.weight")[ids]
        R = np.repeat(x[:, None, :], self.hc, 1)  # equal residual streams
        for i in range(self.L):
            s, b = st["layers"][i], f"blk.{i}."
            if i in self.ple:
                R = self.ple_block(R, ids, s, i, taps)
                taps[f"L{i}/res_ple"] = R.reshape(T, -1)
            x, flat = self.mix(R, b + "hc_attn")
            o = self.delta_net(x, s, i, taps) if self.linear[i] else self.attention(x, s, pos, i, taps)
            R = self.combine(R, o, flat, b + "hc_attn")
            taps[f"L{i}/mix_out"], taps[f"L{i}/res_mix"] = o, R.reshape(T, -1)
            x, flat = self.mix(R, b + "hc_ffn")
            o = self.moe(x, i, taps)
            R = self.combine(R, o, flat, b + "hc_ffn")
            taps[f"L{i}/moe_in"], taps[f"L{i}/moe_out"], taps[f"L{i}/res_moe"] = x, o, R.reshape(T, -1)
        st["pos"] += T
        x, _ = self.mix(R, "output_hc")
        taps["final"] = x
        return (
            self.mm(x, "output.weight" if "output.weight" in self.g.tensors else "token_embd.weight")
            if logits
            else None
        )


def run(model, ids, chunks=None, taps=None):
    """Logits of all positions; chunks: sizes used in turn for the prefill (default: one chunk)."""
    st, out, p, c = model.state(), [], 0, 0
    while p < len(ids):
        n = len(ids) - p if not chunks else min(chunks[c % len(chunks)], len(ids) - p)
        out.append(model.forward(ids[p : p + n], st, taps))
        p, c = p + n, c + 1
    return np.concatenate(out), st


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="*")
    ap.add_argument("--f64", action="store_true")
    ap.add_argument("--chunks", help="comma-separated chunk sizes, used in turn")
    a = ap.parse_args()
    import check

    names = [os.path.basename(m).removesuffix(".gguf") for m in a.models] or check.models()
    bad = 0
    for name in names:
        m = Model(os.path.join(DATA, name + ".gguf"), np.float64 if a.f64 else np.float32)
        chunks = [int(c) for c in a.chunks.split(",")] if a.chunks else None

        def call(ids, n_new, m=m, chunks=chunks):
            taps = {}
            lg, st = run(m, ids, chunks, taps if not chunks else None)
            new = []
            last = lg[-1]
            for _ in range(n_new):
                new.append(int(last.argmax()))
                last = m.forward(new[-1:], st)[-1]
            return {"logits": lg, "greedy": new, "taps": taps}

        bad += check.check_callable(name, call, verbose=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
