"""A lean training forward of the qwen4exp text model (own implementation; parameter names are those of transformers' state dict).

Not run by itself. verify.py compares it with transformers' Qwen4ExpForCausalLM.
"""

import math
import torch
import torch.nn.functional as F
from torch import nn

CFG = dict(
    vocab_size=3072,
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=4096,
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    attention_bias=False,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=64,
    linear_value_head_dim=64,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    moe_intermediate_size=128,
    shared_expert_intermediate_size=128,
    num_experts=48,
    num_experts_per_tok=4,
    layer_types=(["linear_attention"] * 3 + ["indexed_attention"]) * 2,
    hc_count=4,
    hc_lowrank=32,
    ple_layer_ids=[2],
    ple_embed_dim=256,
    ple_conv_kernel_size=4,
    ngram_size=3,
    heads_per_ngram=4,
    ngram_vocab_size_base=2000,
    make_ngram_vocab_size_divisible_by=128,
    seed=1234,
    split_ngram_parts=1,
    indexer_n_heads=4,
    indexer_kv_heads=1,
    indexer_head_dim=64,
    indexer_budget=128,
    indexer_compress_ratio=16,
    norm_topk_prob=True,
    output_gate_type="sigmoid",
    hidden_act="silu",
    eos_token_id=3071,
    bos_token_id=None,
    pad_token_id=None,
    use_cache=True,
    router_aux_loss_coef=0.001,
    initializer_range=0.02,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000.0,
        partial_rotary_factor=0.5,
        mrope_section=[6, 5, 5],
        mrope_interleaved=True,
    ),
)
M64 = (1 << 64) - 1


def hash_constants(c):
    """Multipliers (splitmix64 stream), prime table sizes and offsets of the n-gram hash; only one PLE layer (index 0) is supported."""
    half = max(1, ((1 << 63) - 1) // c["vocab_size"] // 2)
    mult = []
    for i in range(c["ngram_size"]):
        z = (c["seed"] + 2 * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15 * i) & M64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        mult.append(2 * ((z ^ (z >> 31)) % half) + 1)
    prime = lambda n: n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))
    sizes, p = [], c["ngram_vocab_size_base"] - 1
    for _ in range((c["ngram_size"] - 1) * c["heads_per_ngram"]):
        p += 1
        while not prime(p):
            p += 1
        sizes.append(p)
    return mult, sizes, [sum(sizes[:i]) for i in range(len(sizes))]


def rms(x, w, eps=1e-6):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps) * w


def hc_mix(x, nw, down, up, inj):
    b, t, _ = x.shape
    h = x.float().view(b, t, 4, -1)
    xn = rms(h, 1 + nw.view(4, -1)).to(down.dtype if not torch.is_autocast_enabled() else torch.bfloat16)
    flat = xn.reshape(b, t, -1)
    g = torch.sigmoid(F.linear(F.silu(F.linear(flat, down) / 4), up)).view(b, t, 4, -1)
    mixed = (g * xn).mean(-2)
    return (mixed, None) if inj is None else (mixed, 2 * torch.sigmoid(F.linear(flat, inj).float() / 4))


def hc_add(x, h, w):
    return x + (h.float().unsqueeze(-2) * w.unsqueeze(-1)).flatten(-2)


def rope_tables(t, dim, theta, dev):
    f = torch.arange(t, device=dev).float()[:, None] / theta ** (torch.arange(0, dim, 2, device=dev).float() / dim)
    return torch.cat([f, f], -1).cos(), torch.cat([f, f], -1).sin()


def rope(x, cos, sin):
    n = cos.shape[-1]
    a, b = x[..., :n], x[..., n:]
    r = torch.cat([-a[..., n // 2 :], a[..., : n // 2]], -1)
    return torch.cat([a * cos + r * sin, b], -1)


def delta_pre(qkv, conv_w, a, bt, A_log, dt_bias, nk, nv, d):
    """Causal depthwise convolution, split into heads, normalisation, decay: everything before the recurrence. float32, [B, H, T, D]."""
    b, t, c = qkv.shape
    x = F.pad(qkv.float(), (0, 0, conv_w.shape[-1] - 1, 0))
    w = conv_w.squeeze(1).float()
    x = F.silu(sum(x[:, i : i + t] * w[:, i] for i in range(w.shape[1])))
    q, k, v = x.split([nk * d, nk * d, nv * d], -1)
    hv = lambda z, n: z.view(b, t, n, d).transpose(1, 2)
    l2 = lambda z: z * torch.rsqrt((z * z).sum(-1, keepdim=True) + 1e-6)
    q, k = (l2(hv(z, nk)).repeat_interleave(nv // nk, 1) for z in (q, k))
    g = -A_log.float().exp() * F.softplus(a.float() + dt_bias)
    return q * d**-0.5, k, hv(v, nv), g.transpose(1, 2), torch.sigmoid(bt.float()).transpose(1, 2)


def delta_chunks(q, k, v, g, beta, C=64):
    """Gated delta rule by chunks of C tokens; all float32, [B, H, T, D] and [B, H, T]."""
    b, h, t, d = q.shape
    n = t // C
    r = lambda z: z.reshape(b, h, n, C, -1)
    q, k, v, beta = r(q), r(k), r(v), beta.reshape(b, h, n, C, 1)
    G = g.reshape(b, h, n, C).cumsum(-1)
    low = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()
    D = (G[..., :, None] - G[..., None, :]).masked_fill(~low, -1e9).exp()
    kt = k.transpose(-1, -2)
    A = ((beta * k) @ kt) * D
    rhs = torch.cat([beta * v, beta * k * G.exp()[..., None]], -1)
    uw = torch.linalg.solve_triangular(A, rhs, upper=False, unitriangular=True)
    u, w = uw[..., :d], uw[..., d:]
    att = (q @ kt) * D
    q = q * G.exp()[..., None]
    kd = (k * (G[..., -1:] - G).exp()[..., None]).transpose(-1, -2)
    last = G[..., -1].exp()[..., None, None]
    S = q.new_zeros(b, h, d, d)
    out = []
    for i in range(n):
        vn = u[:, :, i] - w[:, :, i] @ S
        out.append(q[:, :, i] @ S + att[:, :, i] @ vn)
        S = S * last[:, :, i] + kd[:, :, i] @ vn
    return torch.stack(out, 2).reshape(b, h, t, d)


def delta_post(o, z, w):
    b, h, t, d = o.shape
    o = o.transpose(1, 2)
    return (rms(o, w) * torch.sigmoid(z.float().view(b, t, h, d))).reshape(b, t, h * d)


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, perm, inv):
        ctx.save_for_backward(inv)
        return x[perm]

    @staticmethod
    def backward(ctx, g):
        return g[ctx.saved_tensors[0]], None, None


def experts(x, idx, wts, gu, down):
    """x [N, H], idx/wts [N, k], gu [E, 2I, H], down [E, H, I]."""
    n, k = idx.shape
    flat = idx.reshape(-1)
    E = gu.shape[0]
    perm = torch.argsort(flat, stable=True)
    inv = torch.empty_like(perm)
    inv[perm] = torch.arange(len(perm), device=x.device)
    cnt = torch.zeros(E, dtype=torch.int32, device=x.device).scatter_add_(
        0, flat, torch.ones_like(flat, dtype=torch.int32)
    )
    offs = cnt.cumsum(0).int()
    xs = Permute.apply(x.unsqueeze(1).expand(n, k, x.shape[1]).reshape(n * k, -1), perm, inv)
    if x.is_cuda:
        mm = lambda a, w: F.grouped_mm(a.bfloat16(), w.bfloat16().transpose(1, 2), offs=offs)
    else:
        e = [0] + offs.tolist()
        mm = lambda a, w: torch.cat([a[e[i] : e[i + 1]] @ w[i].T for i in range(E)])
    h = mm(xs, gu)
    I = h.shape[1] // 2
    y = mm(F.silu(h[:, :I]) * h[:, I:], down)
    return (Permute.apply(y, inv, perm).view(n, k, -1) * wts.unsqueeze(-1).to(y.dtype)).sum(1)


class Model(nn.Module):
    def __init__(s, c=CFG, std=0.02):
        super().__init__()
        s.c = c
        H, L = c["hidden_size"], c["num_hidden_layers"]
        s.p = nn.ParameterDict()
        s.names = {}
        s.quant = None
        s.sparse = True
        s.probe = None
        d, nk, nv = c["linear_key_head_dim"], c["linear_num_key_heads"], c["linear_num_value_heads"]
        hd, nh, kv = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        E, I, S, hc, lr = (
            c["num_experts"],
            c["moe_intermediate_size"],
            c["shared_expert_intermediate_size"],
            c["hc_count"],
            c["hc_lowrank"],
        )
        out = std / math.sqrt(2 * L) * 4

        def add(name, *shape, std=std, fill=None):
            key = name.replace(".", "/")
            s.names[name] = key
            s.p[key] = nn.Parameter(torch.full(shape, float(fill)) if fill is not None else torch.randn(*shape) * std)

        def hcp(pre, inj=True):
            add(pre + ".hc_norm.weight", hc * H, fill=0)
            add(pre + ".input_mix_weight_down.weight", lr, hc * H)
            add(pre + ".input_mix_weight_up.weight", hc * H, lr)
            if inj:
                add(pre + ".block_inject_weight.weight", hc, hc * H)

        add("model.embed_tokens.weight", c["vocab_size"], H, std=0.05)
        for i in range(L):
            m = f"model.layers.{i}."
            hcp(m + "attn_hyper_connection")
            hcp(m + "mlp_hyper_connection")
            if c["layer_types"][i] == "linear_attention":
                a = m + "linear_attn."
                add(a + "in_proj_qkv.weight", (2 * nk + nv) * d, H, std=0.04)
                add(a + "in_proj_z.weight", nv * d, H)
                add(a + "in_proj_b.weight", nv, H)
                add(a + "in_proj_a.weight", nv, H)
                add(a + "conv1d.weight", (2 * nk + nv) * d, 1, 4, std=0.3)
                add(a + "dt_bias", nv, fill=0)
                add(a + "A_log", nv, fill=0)
                add(a + "norm.weight", d, fill=1)
                add(a + "out_proj.weight", H, nv * d, std=out)
                with torch.no_grad():
                    s.p[s.names[a + "dt_bias"]].copy_(torch.linspace(-4, 0, nv))
                    s.p[s.names[a + "A_log"]].copy_(torch.linspace(-1, 1, nv))
            else:
                a = m + "self_attn."
                add(a + "q_proj.weight", 2 * nh * hd, H, std=0.04)
                add(a + "k_proj.weight", kv * hd, H, std=0.04)
                add(a + "v_proj.weight", kv * hd, H, std=0.04)
                add(a + "o_proj.weight", H, nh * hd, std=out)
                add(a + "q_norm.weight", hd, fill=0)
                add(a + "k_norm.weight", hd, fill=0)
                n = c["indexer_head_dim"]
                add(a + "indexer.index_qk_proj.weight", (c["indexer_n_heads"] + 1) * n, H, std=0.04)
                add(a + "indexer.q_layernorm.weight", n, fill=0)
                add(a + "indexer.k_layernorm.weight", n, fill=0)
            add(m + "mlp.gate.weight", E, H, std=0.03)
            add(m + "mlp.experts.gate_up_proj", E, 2 * I, H, std=0.04)
            add(m + "mlp.experts.down_proj", E, H, I, std=out * 2)
            for n, sh in (("gate", (S, H)), ("up", (S, H)), ("down", (H, S))):
                add(m + f"mlp.shared_expert.{n}_proj.weight", *sh, std=out * 2 if n == "down" else 0.04)
            add(m + "mlp.shared_expert_gate.weight", 1, H)
            if i + 1 in c["ple_layer_ids"]:
                q = m + "ple."
                mult, sizes, offs = hash_constants(c)
                div = c["make_ngram_vocab_size_divisible_by"]
                rows = -(-sum(sizes) // div) * div
                P = c["ple_embed_dim"]
                add(q + "ple_embedding.ngram_embedding.weight", rows, P // len(sizes), std=0.05)
                add(q + "key_proj.weight", hc * H, P)
                add(q + "value_proj.weight", H, P)
                for n in ("key", "query", "conv"):
                    add(q + f"norm_{n}.weight", hc * H, fill=0)
                add(q + "conv1d.weight", hc * H, 1, c["ple_conv_kernel_size"], fill=0)
                for n, v in (
                    ("layer_multipliers", mult),
                    ("ngram_heads_vocab_sizes", sizes),
                    ("ngram_heads_offsets", offs),
                ):
                    s.register_buffer(n, torch.tensor(v))
        hcp("model.hyper_connection_mixer", False)

    def state(s):
        sd = {n: s.p[k].detach() for n, k in s.names.items()}
        for i in s.c["ple_layer_ids"]:
            for n in ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"):
                sd[f"model.layers.{i - 1}.ple.ple_embedding.{n}"] = getattr(s, n)
        return sd

    def load(s, sd):
        with torch.no_grad():
            for n, k in s.names.items():
                s.p[k].copy_(sd[n])

    def w(s, n):
        return s.p[s.names[n]]

    def ngram_rows(s, ids):
        c = s.c
        n, eos = c["ngram_size"], c["eos_token_id"]
        hist = F.pad(ids, (n - 1, 0), value=eos)
        t = ids.shape[1]
        ctx = [ids]
        cut = torch.zeros_like(ids, dtype=torch.bool)
        for k in range(1, n):
            prev = hist[:, n - 1 - k : n - 1 - k + t]
            cut = cut | (prev == eos)
            ctx.append(torch.where(cut, eos, prev))
        out, m, h = [], s.layer_multipliers, c["heads_per_ngram"]
        mixed = ctx[0] * m[0]
        for k in range(1, n):
            mixed = mixed ^ (ctx[k] * m[k])
            sl = slice((k - 1) * h, k * h)
            out.append(mixed.unsqueeze(-1) % s.ngram_heads_vocab_sizes[sl] + s.ngram_heads_offsets[sl])
        return torch.cat(out, -1)

    def ple(s, x, ids, m):
        w = lambda n: s.w(m + n)
        b, t, _ = x.shape
        c = s.c
        e = F.embedding(s.ngram_rows(ids), w("ple_embedding.ngram_embedding.weight")).flatten(-2)
        g4 = lambda z: z.float().reshape(b, t, 4, -1)
        key = rms(g4(F.linear(e, w("key_proj.weight"))), 1 + w("norm_key.weight").view(4, -1))
        val = F.linear(e, w("value_proj.weight")).float()
        gate = (key * rms(g4(x), 1 + w("norm_query.weight").view(4, -1))).sum(-1, keepdim=True) / math.sqrt(
            c["hidden_size"]
        )
        gate = torch.sigmoid(gate.abs().clamp_min(1e-6).sqrt() * gate.sign())
        gv = gate * val.unsqueeze(-2)
        cn = rms(gv, 1 + w("norm_conv.weight").view(4, -1)).flatten(-2)
        k, dil = c["ple_conv_kernel_size"], c["ngram_size"]
        pad = F.pad(cn, (0, 0, (k - 1) * dil, 0))
        cw = w("conv1d.weight").squeeze(1)
        return gv.flatten(-2) + F.silu(sum(pad[:, i * dil : i * dil + t] * cw[:, i] for i in range(k)))

    def attention(s, x, a, cos, sin, aux):
        c = s.c
        w = lambda n: s.w(a + n)
        b, t, _ = x.shape
        nh, kv, hd = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        dev = x.device
        q, gate = F.linear(x, w("q_proj.weight")).view(b, t, nh, 2 * hd).chunk(2, -1)
        hv = lambda z, n: z.view(b, t, n, hd)
        tr = lambda z: z.transpose(1, 2)
        q = rope(tr(rms(q.float(), 1 + w("q_norm.weight"))), cos, sin)
        k = rope(tr(rms(hv(F.linear(x, w("k_proj.weight")), kv).float(), 1 + w("k_norm.weight"))), cos, sin)
        v = tr(hv(F.linear(x, w("v_proj.weight")), kv))
        k, v = (z.repeat_interleave(nh // kv, 1) for z in (k, v))
        n, r, top = (
            c["indexer_head_dim"],
            c["indexer_compress_ratio"],
            c["indexer_budget"] // c["indexer_compress_ratio"],
        )
        nb = t // r
        pos = torch.arange(t, device=dev)
        ok = pos[None] <= pos[:, None]
        if nb:
            iqk = F.linear(x.detach(), w("indexer.index_qk_proj.weight")).float()
            iq, ik = iqk.split([c["indexer_n_heads"] * n, n], -1)
            iq = rope(tr(rms(iq.view(b, t, -1, n), 1 + w("indexer.q_layernorm.weight"))), cos, sin)
            ik = rope(
                rms(ik[:, : nb * r].view(b, nb, r, n).mean(2), 1 + w("indexer.k_layernorm.weight")),
                cos[: nb * r : r],
                sin[: nb * r : r],
            )
            sc = torch.relu(iq @ ik.transpose(-1, -2).unsqueeze(1)).sum(1) / math.sqrt(n)  # [b, t, nb]
            done = torch.arange(nb, device=dev)[None] < ((pos + 1) // r)[:, None]
            scm = sc.masked_fill(~done, -1e9)
            if s.probe is not None:
                s.probe.append(scm.detach())
            if s.sparse and nb > top:
                sel = torch.zeros_like(scm, dtype=torch.bool).scatter_(-1, scm.topk(top, -1).indices, True) & done
                blk = (pos // r).clamp(max=nb - 1)
                see = (sel[..., blk] | ~done[:, blk] | (pos >= nb * r)[None]) & ok
            else:
                see = ok[None]
        else:
            see = ok[None]
        att = (q.to(v.dtype) @ k.to(v.dtype).transpose(-1, -2)).float() / math.sqrt(hd)
        if aux is not None and nb:  # teach the indexer the attention's own mass per block
            with torch.no_grad():
                full = att.masked_fill(~ok, -1e9).softmax(-1).sum(1)[..., : nb * r].reshape(b, t, nb, r).sum(-1) * done
                full = full / full.sum(-1, keepdim=True).clamp_min(1e-6)
            lp = scm.log_softmax(-1)
            rows = done.sum(-1) > 1
            aux["index"].append((-(full * lp.masked_fill(~done, 0)).sum(-1) * rows).sum() / (rows.sum() * b))
        o = att.masked_fill(~see.unsqueeze(1), -1e9).softmax(-1).to(v.dtype) @ v
        return F.linear(tr(o).reshape(b, t, -1) * torch.sigmoid(gate.reshape(b, t, -1)), w("o_proj.weight"))

    def forward(s, ids, aux=None, trace=None):
        c = s.c
        w = s.w
        b, t = ids.shape
        C = 64
        pad = -t % C
        x = F.embedding(ids, w("model.embed_tokens.weight")).float().repeat(1, 1, c["hc_count"])
        prev = None
        cos, sin = rope_tables(
            t,
            int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"]),
            c["rope_parameters"]["rope_theta"],
            ids.device,
        )
        for i in range(c["num_hidden_layers"]):
            m = f"model.layers.{i}."
            if i + 1 in c["ple_layer_ids"]:
                x = x + s.ple(x, ids, m + "ple.")
            hc = lambda n: [
                w(m + n + z)
                for z in (
                    ".hc_norm.weight",
                    ".input_mix_weight_down.weight",
                    ".input_mix_weight_up.weight",
                    ".block_inject_weight.weight",
                )
            ]
            h, inj = hc_mix(x, *hc("attn_hyper_connection"))
            if c["layer_types"][i] == "linear_attention":
                a = m + "linear_attn."
                qkv, z, bt, al = (F.linear(h, w(a + f"in_proj_{n}.weight")) for n in ("qkv", "z", "b", "a"))
                q = delta_pre(
                    qkv,
                    w(a + "conv1d.weight"),
                    al,
                    bt,
                    w(a + "A_log"),
                    w(a + "dt_bias"),
                    c["linear_num_key_heads"],
                    c["linear_num_value_heads"],
                    c["linear_key_head_dim"],
                )
                with torch.autocast("cuda", enabled=False):
                    o = delta_chunks(*(F.pad(v, (0, 0) * (v.dim() - 3) + (0, pad)) for v in q))[:, :, :t]
                h = F.linear(delta_post(o, z, w(a + "norm.weight")), w(a + "out_proj.weight"))
            else:
                h = s.attention(h, m + "self_attn.", cos, sin, aux)
            x = hc_add(x, h, inj)
            h, inj = hc_mix(x, *hc("mlp_hyper_connection"))
            f = h.reshape(b * t, -1)
            m += "mlp."
            with torch.autocast("cuda", enabled=False):
                lg = F.linear(f.float(), w(m + "gate.weight"))
                pr = lg.softmax(-1)
                wt, idx = pr.topk(c["num_experts_per_tok"], -1)
                wt = wt / wt.sum(-1, keepdim=True)
                if aux is not None:
                    E = c["num_experts"]
                    fr = (
                        torch.zeros(E, device=x.device).scatter_add_(
                            0, idx.reshape(-1), torch.ones(idx.numel(), device=x.device)
                        )
                        / idx.numel()
                    )
                    aux["balance"].append(E * (fr * pr.mean(0)).sum())
                    if prev is not None:
                        aux["look"].append(
                            -(pr.detach() * F.linear(prev.float(), w(m + "gate.weight")).log_softmax(-1)).sum(-1).mean()
                        )
                if trace is not None:
                    trace.append(
                        dict(
                            x=f,
                            idx=idx,
                            w=wt,
                            logits=lg,
                            next=None if prev is None else F.linear(prev.float(), w(m + "gate.weight")),
                        )
                    )
                prev = f
            gu, dn = w(m + "experts.gate_up_proj"), w(m + "experts.down_proj")
            if s.quant:
                gu, dn = s.quant(i, gu, dn)
            y = experts(f, idx, wt, gu, dn)
            sh = F.linear(
                F.silu(F.linear(f, w(m + "shared_expert.gate_proj.weight")))
                * F.linear(f, w(m + "shared_expert.up_proj.weight")),
                w(m + "shared_expert.down_proj.weight"),
            )
            y = y + torch.sigmoid(F.linear(f, w(m + "shared_expert_gate.weight"))) * sh
            x = hc_add(x, y.view(b, t, -1), inj)
        m = "model.hyper_connection_mixer"
        h, _ = hc_mix(
            x,
            *(w(m + z) for z in (".hc_norm.weight", ".input_mix_weight_down.weight", ".input_mix_weight_up.weight")),
            None,
        )
        return F.linear(h, w("model.embed_tokens.weight"))
