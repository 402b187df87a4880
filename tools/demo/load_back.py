"""Puts the decoded tensors of a GGUF file into transformers' Qwen4ExpForCausalLM: the inverse of export_gguf.py. Not run by itself."""

import os
import sys

import numpy as np
import torch
from export_gguf import value_head_order

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "oracle"))
import gguf_io


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
