"""Build the small qwen4exp models of this folder and their goldens.

    GGML_BASE_LIB=/path/to/libggml-base.so python make_oracle.py [--only NAME ...] [--out DIR]

Needs torch, transformers with `qwen4_exp`, tokenizers, gguf (to decode K and IQ types) and ggml's base library
(to encode K and IQ types). Random weights with a fixed seed are written with export_gguf.py; the goldens are
computed by transformers in float32 from the weights read back (decoded) from the written file, so they hold
for the file as it is. See README.md for the contents.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
sys.path.insert(0, HERE)
import gguf_io  # noqa: E402
import reference  # noqa: E402
from export_gguf import export, value_head_order  # noqa: E402

VOCAB = 512
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_ADDED = ["<tool_call>", "</tool_call>", "<think>", "</think>"]  # added, but not "special"

TRAINING_TEXT = """The reader of a model file trusts nothing: every count, length and offset is checked before use.
A token enters the table, four equal streams leave it, and each layer mixes, transforms and injects what it made.
for (int i = 0; i < n; ++i) { sum += weights[i] * values[i]; }  // the usual loop, twice unrolled
def forward(tokens, state):\n    for layer in layers:\n        state = layer(tokens, state)\n    return state
It's the memory's fault, isn't it? They'll say we've read it; I'd say they're right, and I'm sure you'd agree.
Die Schlüssel werden gemittelt, dann normiert und erst danach gedreht. Où est la mémoire ? Là-bas, déjà chargée.
Быстрый диск читает экспертов заранее. 専門家は必要になる前に読み込まれる。专家在需要之前就被读取。전문가는 미리 읽힌다.
Numbers: 1 12 123 1234 3.14159 1e-6 0x7f 2048+3=2051.  Tabs\t\tand   spaces    and\n\n\nnewlines\r\n end.
"""

TOKEN_CASES = [
    "",
    "a",
    " ",
    "  ",
    "Hello, world!",
    "hello  world   again",
    "The reader of a model file trusts nothing.",
    "It's we've I'M they'LL she'D don't",
    "1234567890 12 3.14 1e-6",
    "2048+3=2051",
    "x=1;\n\ty=2;\r\n\r\n  z=3;   ",
    "\n\n\n",
    " \n \n",
    "tab\tand\t\ttabs",
    "trailing   ",
    "   leading",
    "über Straße où déjà",
    "e\u0301cole",
    "école",
    "A\u030angstro\u0308m",
    "\u1100\u1161\u11a8",
    "각",
    "ｆｕｌｌ ｗｉｄｔｈ",
    "ﬁ ligature",
    "専門家は必要になる前に読み込まれる。",
    "专家在需要之前就被读取",
    "전문가는 미리 읽힌다",
    "Быстрый диск читает",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "مرحبا بالعالم",
    "🚀",
    "👩‍👩‍👧‍👦 family",
    "🏳️‍🌈🇩🇪",
    "a\u0300\u0301b",
    "zero\u200bwidth",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>",
    "a<|endoftext|>b",
    "<|im_start",
    "<|IM_START|>",
    "<think>\n\n</think>\n\nok",
    '<tool_call>{"a": 1}</tool_call>',
    " <think> ",
    "snake_case camelCase kebab-case",
    "https://example.org/a?b=c&d=%20",
    "////====----",
    "...!!!???",
    "foo(bar)[baz]{qux}",
    "100,000.00 €",
    "½ ² Ⅳ ①",
    "\u00a0nbsp\u00a0",
    "\ufeffbom",
    "mixed中文and English123数字",
    "' 's 'S''s",
    "I'll'll",
    "\u2019s curly",
    "\x00\x01control",
    "line\u2028separator\u0085next",
]


def make_tokenizer(path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    tr = trainers.BpeTrainer(
        vocab_size=VOCAB - 16,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    t.train_from_iterator(TRAINING_TEXT.split("\n") + [TRAINING_TEXT] * 2, tr)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    t.add_tokens([AddedToken(s, special=False, normalized=False) for s in PLAIN_ADDED])
    assert t.get_vocab_size() <= VOCAB, t.get_vocab_size()
    t.save(path)
    return t


def prompts(tok, eos):
    enc = lambda s: tok.encode(s).ids  # noqa: E731
    rng = np.random.default_rng(7)
    text = enc(TRAINING_TEXT)
    p64 = enc("<|im_start|>user\nIt's the memory's fault<|im_end|>") + text[60:]
    p64 = [*p64[:20], eos, eos, *p64[20:37], eos, *p64[37:]]
    p300 = text[:70] + rng.integers(0, 490, 90).tolist() + [eos] + text[70:140] + [eos, eos] + text[20:60] + [eos]
    p300 += rng.integers(0, 490, 300).tolist()
    return {
        "p1": [37],
        "p5": text[:5],
        "eos5": [eos, eos, 65, eos, 66],
        "p64": p64[:64],
        "rep64": [88] * 40 + [88, 91] * 12,
        "p300": p300[:300],
    }


# ---------------------------------------------------------------- models


def config(kind, eos):
    from transformers import Qwen4ExpTextConfig

    lin, idx = "linear_attention", "indexed_attention"
    common = dict(
        vocab_size=VOCAB,
        hc_count=4,
        hc_lowrank=32,
        ngram_size=3,
        heads_per_ngram=4,
        ple_conv_kernel_size=4,
        indexer_n_heads=8,
        indexer_kv_heads=1,
        indexer_compress_ratio=4,
        output_gate_type="sigmoid",
        num_attention_heads=4,
        num_key_value_heads=2,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        ple_layer_ids=[2],
        eos_token_id=eos,
        max_position_embeddings=4096,
        norm_topk_prob=True,
        make_ngram_vocab_size_divisible_by=128,
    )
    rope = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True)
    if kind == "tiny":
        return Qwen4ExpTextConfig(
            hidden_size=64,
            num_hidden_layers=5,
            head_dim=32,
            rope_parameters=dict(rope, mrope_section=[2, 1, 1]),
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            num_experts=16,
            num_experts_per_tok=4,
            layer_types=[lin, lin, idx, lin, idx],
            ple_embed_dim=64,
            ngram_vocab_size_base=500,
            indexer_head_dim=16,
            indexer_budget=32,
            **common,
        )
    if kind == "ties":  # one indexer head: half the scores are 0
        common.update(indexer_n_heads=1, ple_layer_ids=[1], hc_lowrank=16)
        return Qwen4ExpTextConfig(
            hidden_size=64,
            num_hidden_layers=2,
            head_dim=32,
            rope_parameters=dict(rope, mrope_section=[2, 1, 1]),
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            num_experts=8,
            num_experts_per_tok=2,
            layer_types=[lin, idx],
            ple_embed_dim=64,
            ngram_vocab_size_base=120,
            indexer_head_dim=16,
            indexer_budget=32,
            **common,
        )
    return Qwen4ExpTextConfig(
        hidden_size=256,
        num_hidden_layers=3,
        head_dim=64,
        rope_parameters=dict(rope, mrope_section=[3, 3, 2]),
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        moe_intermediate_size=256,
        shared_expert_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
        layer_types=[lin, lin, idx],
        ple_embed_dim=256,
        ngram_vocab_size_base=250,
        indexer_head_dim=32,
        indexer_budget=64,
        **common,
    )


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    n = lambda p, std, mean=0.0: p.copy_(torch.randn(p.shape, generator=g) * std + mean)  # noqa: E731
    u = lambda p, lo, hi: p.copy_(torch.rand(p.shape, generator=g) * (hi - lo) + lo)  # noqa: E731
    hc = model.config.hc_count
    with torch.no_grad():
        for name, p in model.named_parameters():
            leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
            inv = p.shape[-1] ** -0.5
            if name.endswith("linear_attn.norm.weight"):
                n(p, 0.15, 1.0)
            elif "norm" in leaf:
                n(p, 0.15)
            elif leaf in ("embed_tokens", "ngram_embedding"):
                n(p, 1.0)
            elif leaf == "input_mix_weight_down":
                n(p, 1.5 * hc * inv)
            elif leaf == "input_mix_weight_up":
                n(p, 3.0 * inv)
            elif leaf == "block_inject_weight":
                n(p, hc * inv)
            elif leaf == "A_log":
                u(p, -2.5, 1.2)
            elif leaf == "dt_bias":
                u(p, -4.0, 0.5)
            elif leaf == "conv1d":
                n(p, 0.5)
            elif leaf in ("gate", "lm_head"):  # router, output
                n(p, 3.0 * inv)
            elif leaf in ("o_proj", "out_proj", "down_proj"):  # what a sub-block adds
                n(p, 0.7 * inv)
            else:
                n(p, 1.5 * inv)


def load_back(model, path):
    """Put the decoded tensors of a GGUF file into the transformers model (undoes export_gguf's changes)."""
    c, g = model.config, gguf_io.GGUF(path)
    t = {k: torch.from_numpy(np.ascontiguousarray(v.f32())) for k, v in g.tensors.items()}
    nk, nv, d = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim
    order = value_head_order(nk, nv)
    inv = np.argsort(order)
    rows = (inv[:, None] * d + np.arange(d)).reshape(-1)
    qk = 2 * nk * c.linear_key_head_dim
    sd = model.state_dict()

    def hc(src, dst):
        sd[dst + ".hc_norm.weight"] = t[src + "_norm.weight"] - 1
        sd[dst + ".input_mix_weight_down.weight"] = t[src + "_down.weight"]
        sd[dst + ".input_mix_weight_up.weight"] = t[src + "_up.weight"]
        if src + "_inject.weight" in t:
            sd[dst + ".block_inject_weight.weight"] = t[src + "_inject.weight"]

    sd["model.embed_tokens.weight"], sd["lm_head.weight"] = t["token_embd.weight"], t["output.weight"]
    hc("output_hc", "model.hyper_connection_mixer")
    for i in range(c.num_hidden_layers):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        hc(b + "hc_attn", m + "attn_hyper_connection")
        hc(b + "hc_ffn", m + "mlp_hyper_connection")
        if b + "ple_key.weight" in t:
            sd[m + "ple.ple_embedding.ngram_embedding.weight"] = t["per_layer_token_embd.weight"]
            sd[m + "ple.key_proj.weight"], sd[m + "ple.value_proj.weight"] = (
                t[b + "ple_key.weight"],
                t[b + "ple_value.weight"],
            )
            for n in ("key", "query", "conv"):
                sd[m + f"ple.norm_{n}.weight"] = t[b + f"ple_norm_{n}.weight"] - 1
            sd[m + "ple.conv1d.weight"] = t[b + "ple_conv1d.weight"].unsqueeze(1)
        if b + "ssm_a" in t:
            a = m + "linear_attn."
            w = t[b + "attn_qkv.weight"]
            sd[a + "in_proj_qkv.weight"] = torch.cat([w[:qk], w[qk:][rows]])
            sd[a + "in_proj_z.weight"] = t[b + "attn_gate.weight"][rows]
            sd[a + "in_proj_b.weight"], sd[a + "in_proj_a.weight"] = (
                t[b + "ssm_beta.weight"][inv],
                t[b + "ssm_alpha.weight"][inv],
            )
            w = t[b + "ssm_conv1d.weight"]
            sd[a + "conv1d.weight"] = torch.cat([w[:qk], w[qk:][rows]]).unsqueeze(1)
            sd[a + "dt_bias"], sd[a + "A_log"] = t[b + "ssm_dt.bias"][inv], torch.log(-t[b + "ssm_a"])[inv]
            sd[a + "norm.weight"], sd[a + "out_proj.weight"] = (
                t[b + "ssm_norm.weight"],
                t[b + "ssm_out.weight"][:, rows],
            )
        else:
            a = m + "self_attn."
            for n, o in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
                sd[a + f"{n}_proj.weight"] = t[b + o + ".weight"]
            sd[a + "q_norm.weight"], sd[a + "k_norm.weight"] = (
                t[b + "attn_q_norm.weight"] - 1,
                t[b + "attn_k_norm.weight"] - 1,
            )
            x = a + "indexer."
            sd[x + "index_qk_proj.weight"] = torch.cat([t[b + "indexer.q_proj.weight"], t[b + "indexer.k_proj.weight"]])
            sd[x + "q_layernorm.weight"], sd[x + "k_layernorm.weight"] = (
                t[b + "indexer.q_norm.weight"] - 1,
                t[b + "indexer.k_norm.weight"] - 1,
            )
        f = m + "mlp."
        sd[f + "gate.weight"] = t[b + "ffn_gate_inp.weight"]
        sd[f + "experts.gate_up_proj"] = torch.cat([t[b + "ffn_gate_exps.weight"], t[b + "ffn_up_exps.weight"]], 1)
        sd[f + "experts.down_proj"] = t[b + "ffn_down_exps.weight"]
        for n in ("gate", "up", "down"):
            sd[f + f"shared_expert.{n}_proj.weight"] = t[b + f"ffn_{n}_shexp.weight"]
        sd[f + "shared_expert_gate.weight"] = t[b + "ffn_gate_inp_shexp.weight"].reshape(1, -1)
    model.load_state_dict(sd)


# ---------------------------------------------------------------- goldens


def run_reference(ref, ids, n_new):
    """The same outputs from reference.py, for the model whose block choice transformers leaves undefined."""
    taps = {}
    logits, st = reference.run(ref, ids, None, taps)
    taps = {k: np.asarray(v) for k, v in taps.items()}
    new, last = [], logits[-1]
    for _ in range(n_new):
        new.append(int(last.argmax()))
        last = ref.forward(new[-1:], st)[-1]
    return logits.astype(np.float32), new, taps


def in_pieces(model, ids, sizes):
    from transformers import DynamicCache

    cache, out, p = DynamicCache(config=model.config), [], 0
    with torch.no_grad():
        for n in sizes:
            out.append(model(torch.tensor([ids[p : p + n]]), cache=cache, use_cache=True).logits[0])
            p += n
    return torch.cat(out).numpy()


def run_hf(model, ids, n_new, want_taps):
    """One prefill of all ids, then greedy decoding with the cache."""
    c, taps, hooks = model.config, {}, []
    order = value_head_order(c.linear_num_key_heads, c.linear_num_value_heads)

    def pre(mod, key, kw=None):
        hooks.append(
            mod.register_forward_pre_hook(
                lambda m, a, k: taps.__setitem__(key, (a[0] if a else next(iter(k.values()))).detach()[0]),
                with_kwargs=True,
            )
        )

    def post(mod, key, pick=lambda o: o):
        hooks.append(mod.register_forward_hook(lambda m, a, o: taps.__setitem__(key, pick(o).detach())))

    if want_taps:
        first = lambda o: (o[0] if isinstance(o, tuple) else o)[0]  # noqa: E731
        for i, layer in enumerate(model.model.layers):
            if layer.ple is not None:
                pre(layer.ple.ple_embedding.ngram_embedding, "ple_rows")
                post(layer.ple, f"L{i}/ple_out", first)
                pre(layer.attn_hyper_connection, f"L{i}/res_ple")
            mixer = layer.linear_attn if c.layer_types[i] == "linear_attention" else layer.self_attn
            post(mixer, f"L{i}/mix_out", first)
            pre(layer.mlp_hyper_connection, f"L{i}/res_mix")
            pre(layer.mlp, f"L{i}/moe_in")
            post(layer.mlp, f"L{i}/moe_out", first)
            post(layer.mlp.gate, f"L{i}/router_ids", lambda o: o[2])
            post(layer.mlp.gate, f"L{i}/router_weights", lambda o: o[1])
            post(layer, f"L{i}/res_moe", first)
            if mixer is not getattr(layer, "linear_attn", None):
                post(layer.self_attn.indexer, f"L{i}/mask", lambda o: o[0, 0])
        post(model.model.hyper_connection_mixer, "final", first)
    from transformers import DynamicCache

    cache = DynamicCache(config=c)
    with torch.no_grad():
        out = model(torch.tensor([ids]), cache=cache, use_cache=True)
        for h in hooks:
            h.remove()
        if want_taps:
            for i, lt in enumerate(c.layer_types):
                if lt == "linear_attention":
                    taps[f"L{i}/S"] = cache.layers[i].recurrent_states[0][0][order].clone()
        logits, new, last = out.logits[0].numpy(), [], out.logits[0, -1]
        for _ in range(n_new):
            new.append(int(last.argmax()))
            last = model(torch.tensor([new[-1:]]), cache=cache, use_cache=True).logits[0, -1]
    r, T = c.indexer_compress_ratio, len(ids)
    res = {}
    for k, v in taps.items():
        v = v.numpy()
        if k.endswith("/mask"):  # per complete block, without the tail
            nb = T // r
            m = v[:, : nb * r].reshape(T, nb, r).all(-1)
            done = (np.arange(T) + 1) // r
            res[k.replace("/mask", "/qsa_blocks")] = m & (np.arange(nb)[None, :] < done[:, None])
        else:
            res[k] = v
    return logits, new, res


def positions(name, T):
    if name == "rep64":
        return np.arange(0, T, 3)
    return np.arange(T) if T <= 64 else np.unique(np.r_[0:8, 8:T:12, T - 8 : T])


def goldens(model, path, cases, full_taps, by_rule=False):
    ref = reference.Model(path, np.float64)
    out, report = {}, {}
    for name, ids in cases.items():
        T, pos = len(ids), positions(name, len(ids))
        t64 = {}
        l64, _ = reference.run(ref, ids, None, t64)
        if by_rule:
            logits, new, taps = run_reference(ref, ids, 16)
            taps = {k: v for k, v in taps.items() if not k.endswith("gap")} if name in ("p64", "p300") else {}
        else:
            logits, new, taps = run_hf(model, ids, 16, name in ("p64", "p300"))
            if name == "p300":  # its cache must not change anything
                d = np.abs(in_pieces(model, ids, [7, 1, 1, 100, 64, 127]) - logits).max()
                print(f"   transformers in pieces against one pass, p300: {d:.1e}")
        out[f"{name}/positions"] = pos.astype(np.int32)
        out[f"{name}/logits"] = logits[pos]
        out[f"{name}/logits_err"] = np.abs(logits - l64)[pos].max(-1).astype(np.float32)
        out[f"{name}/greedy"] = np.array(new, np.int32)
        report[name] = float(np.abs(logits - l64).max()), float(np.abs(logits).max()), float(logits.std())
        gaps = [v for k, v in t64.items() if k.endswith("router_gap")]
        qg = [v for k, v in t64.items() if k.endswith("qsa_gap")]
        out[f"{name}/router_gap"] = np.min(gaps, 0).astype(np.float32)  #
        if qg:  # smallest over the layers
            out[f"{name}/qsa_gap"] = np.min(qg, 0).astype(np.float32)
        keep = np.arange(0, T, 2) if full_taps and T <= 64 else np.array([0, 1, T // 2, T - 2, T - 1])
        if name == "p300":
            keep = np.array([0, 3, 35, 36, 100, 163, 232, 298, 299])
        if taps:
            out[f"{name}/tap_positions"] = keep.astype(np.int32)
        for k, v in taps.items():
            if k.endswith("/S"):
                out[f"{name}/{k}"] = v
            elif k.endswith("qsa_blocks"):
                out[f"{name}/{k}"] = v  # all positions
                assert (v == t64[k]).all() or np.min(t64[k.replace("blocks", "gap")]) < 1e-5, (name, k)
            elif k.endswith(("router_ids", "ple_rows")):
                out[f"{name}/{k}"] = v.astype(np.int32)  # all positions
            elif name == "p64" or k.endswith(("res_moe", "router_weights")) or k == "final":
                out[f"{name}/{k}"] = v[keep].astype(np.float32)
    return out, report


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only", nargs="*")
    ap.add_argument("--out", default=DATA)
    a = ap.parse_args()
    from transformers import Qwen4ExpForCausalLM

    os.makedirs(os.path.join(a.out, "goldens"), exist_ok=True)
    tok_path = os.path.join(a.out, "tokenizer.json")
    tok = make_tokenizer(tok_path)
    eos, im_end = tok.token_to_id("<|endoftext|>"), tok.token_to_id("<|im_end|>")
    with open(os.path.join(a.out, "tokenizer_cases.json"), "w") as f:
        rows = [
            {"text": s, "ids": tok.encode(s).ids, "decoded": tok.decode(tok.encode(s).ids, skip_special_tokens=False)}
            for s in TOKEN_CASES
        ]
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    cases = prompts(tok, eos)
    with open(os.path.join(a.out, "prompts.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "\n}\n")

    plans = {
        "tiny-ties": ("ties", "F16"),
        "tiny-f32": ("tiny", "F32"),
        "tiny-f16": ("tiny", "F16"),
        "small-q8_0": ("small", "Q8_0"),
        "small-iq2xs-q2_0": ("small", {r"ffn_(gate|up)_exps": "IQ2_XS", r"ffn_down_exps": "Q2_0", "": "Q8_0"}),
        "small-q4_k": ("small", "Q4_K"),
        "small-iq4_nl": ("small", {r"exps\.weight$": "IQ4_NL", "per_layer_token_embd": "IQ4_NL", "": "Q8_0"}),
    }
    built = {}
    for name, (kind, types) in plans.items():
        if a.only and name not in a.only:
            continue
        if kind not in built:
            torch.manual_seed(0)
            m = Qwen4ExpForCausalLM._from_config(config(kind, eos), attn_implementation="eager").float().eval()
            randomise(m, {"tiny": 12, "small": 62, "ties": 13}[kind])
            built[kind] = m, {k: v.clone() for k, v in m.state_dict().items()}
        model, sd = built[kind]
        path = os.path.join(a.out, name + ".gguf")
        # the tokenizer's end token is <|im_end|>; the n-gram reset token is <|endoftext|>
        export(
            sd,
            model.config,
            path,
            tok,
            types,
            name="oracle-" + name,
            tokenizer_args=dict(eos=im_end, pad=eos),
            shexp_1d=kind != "tiny",
        )
        load_back(model, path)
        g, rep = goldens(model, path, cases, name == "tiny-f32", kind == "ties")
        if kind == "ties":
            g["by_rule"] = np.array(1)
        np.savez_compressed(os.path.join(a.out, "goldens", name + ".npz"), **g)
        print(name, os.path.getsize(path), os.path.getsize(os.path.join(a.out, "goldens", name + ".npz")))
        for k, (e, mx, sdv) in rep.items():
            print(f"   {k:6s} |golden - reference f64| {e:.2e}   max |logit| {mx:.2f}  std {sdv:.2f}")


if __name__ == "__main__":
    main()
