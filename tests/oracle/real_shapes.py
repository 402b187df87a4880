"""Make a model with the real model's shapes (few layers, few experts, small vocabulary) and its goldens.

    python real_shapes.py OUT.gguf [--experts 16] [--mix q8|seed] [--tokens 48] [--budget 16] [--f64] [--seed 1]

Kernels written for the real head sizes (delta-net 128, attention 256, indexer 128, hidden 2560, expert width 640,
16/48 and 24/2 heads, rank 320, table rows of 160) never run on the tiny and small models; this file gives them
something to run on. 3 layers (delta-net, delta-net + n-gram, attention), about 250 to 300 MB, so it is made when
needed and not kept here. --mix q8: everything Q8_0; seed: expert gate/up IQ2_XS, down Q2_0, rest Q8_0. Weights are
random blocks written directly in their format. OUT.npz gets prompt, logits and the intermediates of README.md (all
positions, no prompt prefix in the names), computed by reference.py (float32, or float64 with --f64). Needs numpy.
"""

import argparse
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
sys.path.insert(0, HERE)
import gguf_io  # noqa: E402
import layout  # noqa: E402
import reference  # noqa: E402
from export_gguf import metadata, tokenizer_metadata  # noqa: E402


def config(experts, budget):
    lin, att = "linear_attention", "full_attention"
    return dict(
        vocab_size=512,
        hidden_size=2560,
        num_hidden_layers=3,
        num_attention_heads=24,
        num_key_value_heads=2,
        head_dim=256,
        rope_parameters=dict(rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10]),
        rms_norm_eps=1e-6,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=48,
        moe_intermediate_size=640,
        shared_expert_intermediate_size=640,
        num_experts=experts,
        num_experts_per_tok=10,
        layer_types=[lin, lin, att],
        hc_count=4,
        hc_lowrank=320,
        ple_layer_ids=[2],
        ple_embed_dim=2560,
        ple_conv_kernel_size=4,
        ngram_size=3,
        heads_per_ngram=8,
        eos_token_id=496,
        indexer_n_heads=4,
        indexer_head_dim=128,
        indexer_budget=budget,
        indexer_compress_ratio=4,
        max_position_embeddings=262144,
        full_attention_interval=3,
    )


def blocks(rng, tname, rows, n, std):
    """Random rows of a type with about the wanted standard deviation."""
    _, bs, bb = gguf_io.TYPES[tname]
    nb = rows * n // bs

    def make(count, d):
        raw = rng.integers(0, 256, (count, bb), dtype=np.uint8)
        if tname == "Q2_0":  # codes -1, 0, 1, 2 with mean near 0
            q = rng.choice(4, (count, 16, 4), p=[0.30, 0.42, 0.22, 0.06]).astype(np.uint8)
            raw[:, 2:] = (q << np.arange(0, 8, 2, dtype=np.uint8)).sum(-1).astype(np.uint8)
        raw[:, :2] = (d * rng.uniform(0.7, 1.3, (count, 1))).astype(np.float16).view(np.uint8)
        return raw

    unit = gguf_io.dequantize(make(64, 1.0).reshape(1, -1), tname).std()
    return make(nb, std / unit).reshape(rows, -1)


def float_values(rng, leaf, shape):
    """Values of a tensor that is stored as floats, in the range of a trained model's."""
    x, inv = rng.standard_normal(shape), shape[-1] ** -0.5
    if leaf == "ssm_a":
        return -np.exp(rng.uniform(-2.5, 1.2, shape))
    if leaf == "ssm_dt":
        return rng.uniform(-4, 0.5, shape)
    if leaf in ("ssm_conv1d", "ple_conv1d"):
        return 0.5 * x
    if leaf in ("ffn_gate_inp", "ffn_gate_inp_shexp"):
        return (3 if leaf == "ffn_gate_inp" else 1.5) * inv * x
    return 1 + 0.15 * x


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--experts", type=int, default=16)
    ap.add_argument("--mix", choices=["q8", "seed"], default="seed")
    ap.add_argument("--tokens", type=int, default=48)
    ap.add_argument("--budget", type=int, default=16)
    ap.add_argument("--f64", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    rng = np.random.default_rng(a.seed)
    cfg = config(a.experts, a.budget)
    sizes = [127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199]
    rows = -(-sum(sizes) // 128) * 128
    p = "model.layers.1.ple.ple_embedding."
    state = {
        p + "layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071]),
        p + "ngram_heads_vocab_sizes": np.array(sizes),
        p + "ngram_heads_offsets": np.cumsum([0, *sizes[:-1]]),
    }
    kv = metadata(cfg, state, "real-shapes", 7)
    kv += tokenizer_metadata(os.path.join(DATA, "tokenizer.json"), 512, eos=498, pad=496)
    want = layout.expected({k: v for k, _, v in kv}, {k: t for k, t, _ in kv}, rows)
    out = []
    for name, ne in want.items():
        shape, n = tuple(reversed(ne)), ne[0]
        leaf = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.rsplit(".", 1)[-1]
        inv = n**-0.5
        tname = "Q8_0"
        if a.mix == "seed" and "exps" in name:
            tname = "Q2_0" if "down" in name else "IQ2_XS"
        if layout.is_float(name) or leaf in ("ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d", "ple_conv1d"):
            tname = "F16" if leaf == "ple_conv1d" else "F32"
            x = float_values(rng, leaf, shape)
            data = gguf_io.quantize(x.astype(np.float32), tname)
        else:
            gain = {"token_embd": 1 / inv, "per_layer_token_embd": 1 / inv, "output": 3.0}.get(leaf, 1.5)
            if leaf.endswith("_down") and "hc" in leaf:
                gain = 6.0
            elif leaf.endswith("_up") and "hc" in leaf:
                gain = 3.0
            elif leaf.endswith("_inject"):
                gain = 4.0
            elif leaf in ("attn_output", "ssm_out", "ffn_down_exps", "ffn_down_shexp"):
                gain = 0.7
            data = blocks(rng, tname, int(np.prod(shape[:-1])), n, gain * inv)
        out.append((name, shape, tname, data))
    gguf_io.write_gguf(a.out, kv, out)
    del out
    ids = rng.integers(0, 490, a.tokens)
    ids[[a.tokens // 3, a.tokens // 3 + 5]] = 496
    m = reference.Model(a.out, np.float64 if a.f64 else np.float32)
    taps = {}
    logits, _ = reference.run(m, ids, None, taps)
    np.savez_compressed(
        os.path.splitext(a.out)[0] + ".npz",
        ids=ids,
        logits=logits.astype(np.float32),
        **{k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in taps.items()},
    )
    print(
        json.dumps(
            {
                "file": a.out,
                "bytes": os.path.getsize(a.out),
                "logit std": float(logits.std()),
                "max": float(np.abs(logits).max()),
                "min router gap": float(min(v.min() for k, v in taps.items() if k.endswith("router_gap"))),
                "min block gap": float(min(v.min() for k, v in taps.items() if k.endswith("qsa_gap"))),
            }
        )
    )


if __name__ == "__main__":
    main()
