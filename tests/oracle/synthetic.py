"""Random qwen4exp models of any sizes and any tensor types, as GGUF files.

    make("out.gguf", config(hidden=256, layers="dda"), types=lambda name: "Q4_K", seed=1)

config() gives sizes, which may be changed one by one; types() gives a tensor's type by its name. Vectors, routers and
convolutions are F32 whatever types() says, as in published files. Types that gguf_io cannot encode are encoded by
strata._core.quantize: what the file holds afterwards is decoded by quants/dequant.py when reference.py reads it.
"""

import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
sys.path.insert(0, HERE)
import gguf_io  # noqa: E402
import layout  # noqa: E402
from export_gguf import metadata, tokenizer_metadata  # noqa: E402

KEPT = ("ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d", "ple_conv1d")


def config(hidden=64, layers="ddada", **changes):
    """layers: a letter each, d delta-net, a attention; the n-gram embedding is on the second."""
    kinds = {"d": "linear_attention", "a": "full_attention"}
    sizes = dict(
        vocab_size=512,
        hidden_size=hidden,
        num_hidden_layers=len(layers),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_parameters=dict(rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[2, 1, 1]),
        rms_norm_eps=1e-6,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        num_experts=8,
        num_experts_per_tok=2,
        layer_types=[kinds[letter] for letter in layers],
        hc_count=4,
        hc_lowrank=16,
        ple_layer_ids=[2],
        ple_embed_dim=hidden,
        ple_conv_kernel_size=4,
        ngram_size=3,
        heads_per_ngram=4,
        eos_token_id=496,
        indexer_n_heads=16,  # with few heads many scores are 0
        indexer_head_dim=16,
        indexer_budget=32,
        indexer_compress_ratio=4,
        max_position_embeddings=4096,
        full_attention_interval=4,
    )
    assert not changes.keys() - sizes.keys()
    return sizes | changes


def values(rng, name, leaf, shape):
    """Random values in the range of a trained model's, so that no step is trivial."""
    x, inv = rng.standard_normal(shape), shape[-1] ** -0.5
    if leaf == "ssm_a":
        return -np.exp(rng.uniform(-2.5, 1.2, shape))
    if leaf == "ssm_dt":
        return rng.uniform(-4, 0.5, shape)
    if leaf in ("ssm_conv1d", "ple_conv1d"):
        return 0.5 * x
    if layout.is_float(name):
        return 1 + 0.15 * x
    gain = {"token_embd": 1 / inv, "per_layer_token_embd": 1 / inv, "output": 3, "ffn_gate_inp": 3}.get(leaf, 1.5)
    if "hc_" in leaf and leaf.endswith(("_down", "_up", "_inject")):
        gain = 6 if leaf.endswith("_down") else 3 if leaf.endswith("_up") else 4
    elif leaf in ("attn_output", "ssm_out", "ffn_down_exps", "ffn_down_shexp"):
        gain = 0.7
    return gain * inv * x


def encode(x, tname):
    if tname in ("F32", "F16", "BF16", "Q8_0"):
        return gguf_io.quantize(x, tname)
    from strata import _core

    return _core.quantize(tname, x)


def make(path, cfg, types, seed=1):
    """Writes the file; returns {tensor name: type}."""
    rng = np.random.default_rng(seed)
    heads = (cfg["ngram_size"] - 1) * cfg["heads_per_ngram"]
    sizes = [61 + 4 * i for i in range(heads)]
    p = f"model.layers.{cfg['ple_layer_ids'][0] - 1}.ple.ple_embedding."
    state = {
        p + "layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071][: cfg["ngram_size"]]),
        p + "ngram_heads_vocab_sizes": np.array(sizes),
        p + "ngram_heads_offsets": np.cumsum([0, *sizes[:-1]]),
    }
    kv = metadata(cfg, state, "synthetic", 0)
    kv += tokenizer_metadata(os.path.join(DATA, "tokenizer.json"), cfg["vocab_size"], eos=498, pad=496)
    want = layout.expected({k: v for k, _, v in kv}, {k: t for k, t, _ in kv}, sum(sizes))
    out, used = [], {}
    for name, ne in want.items():
        shape = tuple(reversed(ne))
        leaf = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.rsplit(".", 1)[-1]
        tname = "F32" if layout.is_float(name) or leaf in KEPT else types(name)
        if shape[-1] % gguf_io.TYPES[tname][1]:
            tname = "Q8_0" if shape[-1] % 32 == 0 else "F16"
        used[name] = tname
        out.append((name, shape, tname, encode(values(rng, name, leaf, shape).astype(np.float32), tname)))
    gguf_io.write_gguf(path, kv, out)
    return used
