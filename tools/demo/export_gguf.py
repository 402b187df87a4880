"""Write a transformers `qwen4_exp` text model as a GGUF file of architecture `qwen4exp`.

As a module:
    from export_gguf import export
    export(model.state_dict(), model.config, "out.gguf", tokenizer="tokenizer.json", types="Q8_0")
As a script (a folder with config.json, *.safetensors and tokenizer.json):
    python export_gguf.py MODEL_DIR OUT.gguf [--type Q8_0] [--map REGEX=TYPE ...]

Dependencies: numpy and tests/oracle/gguf_io.py; torch only if the weights are torch tensors.
Names, transformations and metadata follow docs/file-format.md.
"""

import argparse
import json
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "oracle"))
import gguf_io  # noqa: E402

ARCH = "qwen4exp"
FILE_TYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 15, "Q6_K": 18, "IQ2_XS": 20, "IQ4_NL": 25, "BF16": 32}


def _np(t):
    if isinstance(t, np.ndarray):
        return t
    t = t.detach().cpu()
    return t.numpy() if not t.dtype.is_floating_point else t.float().numpy()


def _get(config, name, default=None):
    if isinstance(config, dict):
        return config.get(name, default)
    return getattr(config, name, default)


def value_head_order(n_k, n_v):
    """GGUF position -> transformers value head. transformers keeps the value heads of one key head together;
    GGUF keeps equal ranks together, so that value head j uses key head j % n_k."""
    return np.arange(n_v).reshape(n_k, n_v // n_k).T.reshape(-1)


def _rows(order, width):
    return (order[:, None] * width + np.arange(width)).reshape(-1)


def gguf_tensors(state_dict, config):
    """Yields (GGUF name, float32 array in numpy order) for every tensor."""
    c = lambda n, d=None: _get(config, n, d)  # noqa: E731
    sd = {}
    for k, v in state_dict.items():
        k = k.replace("model.language_model.", "model.")
        if k.startswith(("model.", "lm_head.")) and not k.startswith(("model.visual.", "model.mtp.")):
            sd[k] = v
    used = set()

    def w(name):
        used.add(name)
        return _np(sd[name]).astype(np.float32)

    n_k, n_v = c("linear_num_key_heads"), c("linear_num_value_heads")
    dk, dv = c("linear_key_head_dim"), c("linear_value_head_dim")
    if dk != dv:
        raise ValueError("GGUF stores one linear head size (ssm.state_size): key and value sizes must be equal")
    order = value_head_order(n_k, n_v)
    vrows = _rows(order, dv)
    qk = 2 * n_k * dk

    def gated_residual(src, dst, inject):
        yield f"{dst}_norm.weight", w(f"{src}.hc_norm.weight") + 1
        yield f"{dst}_down.weight", w(f"{src}.input_mix_weight_down.weight")
        yield f"{dst}_up.weight", w(f"{src}.input_mix_weight_up.weight")
        if inject:
            yield f"{dst}_inject.weight", w(f"{src}.block_inject_weight.weight")

    yield "token_embd.weight", w("model.embed_tokens.weight")
    if "lm_head.weight" in sd and not c("tie_word_embeddings", False):
        yield "output.weight", w("lm_head.weight")
    yield from gated_residual("model.hyper_connection_mixer", "output_hc", False)

    for i in range(c("num_hidden_layers")):
        s, d = f"model.layers.{i}.", f"blk.{i}."
        p = s + "ple.ple_embedding.ngram_embedding."
        if p + "weight" in sd or p + "shard_0.weight" in sd:
            if p + "weight" in sd:
                table = w(p + "weight")
            else:
                shards = sorted(
                    (k for k in sd if k.startswith(p + "shard_")), key=lambda k: int(k[len(p) + 6 :].split(".")[0])
                )
                table = np.concatenate([w(k) for k in shards])
            yield "per_layer_token_embd.weight", table
            yield d + "ple_key.weight", w(s + "ple.key_proj.weight")
            yield d + "ple_value.weight", w(s + "ple.value_proj.weight")
            for n in ("key", "query", "conv"):
                yield d + f"ple_norm_{n}.weight", w(s + f"ple.norm_{n}.weight") + 1
            t = w(s + "ple.conv1d.weight")
            yield d + "ple_conv1d.weight", t.reshape(t.shape[0], t.shape[-1])
            for n in ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"):
                used.add(s + "ple.ple_embedding." + n)
        yield from gated_residual(s + "attn_hyper_connection", d + "hc_attn", True)
        yield from gated_residual(s + "mlp_hyper_connection", d + "hc_ffn", True)
        if s + "linear_attn.in_proj_qkv.weight" in sd:
            a = s + "linear_attn."
            t = w(a + "in_proj_qkv.weight")
            yield d + "attn_qkv.weight", np.concatenate([t[:qk], t[qk:][vrows]])
            yield d + "attn_gate.weight", w(a + "in_proj_z.weight")[vrows]
            yield d + "ssm_beta.weight", w(a + "in_proj_b.weight")[order]
            yield d + "ssm_alpha.weight", w(a + "in_proj_a.weight")[order]
            t = w(a + "conv1d.weight")
            t = t.reshape(t.shape[0], t.shape[-1])
            yield d + "ssm_conv1d.weight", np.concatenate([t[:qk], t[qk:][vrows]])
            yield d + "ssm_dt.bias", w(a + "dt_bias")[order]
            yield d + "ssm_a", -np.exp(w(a + "A_log"))[order]
            yield d + "ssm_norm.weight", w(a + "norm.weight")  # no +1 here
            yield d + "ssm_out.weight", w(a + "out_proj.weight")[:, vrows]
        else:
            a = s + "self_attn."
            yield d + "attn_q.weight", w(a + "q_proj.weight")  # per head: q then gate
            yield d + "attn_k.weight", w(a + "k_proj.weight")
            yield d + "attn_v.weight", w(a + "v_proj.weight")
            yield d + "attn_output.weight", w(a + "o_proj.weight")
            yield d + "attn_q_norm.weight", w(a + "q_norm.weight") + 1
            yield d + "attn_k_norm.weight", w(a + "k_norm.weight") + 1
            if a + "indexer.index_qk_proj.weight" in sd:
                t = w(a + "indexer.index_qk_proj.weight")
                nq = c("indexer_n_heads") * c("indexer_head_dim")
                yield d + "indexer.q_proj.weight", t[:nq]
                yield d + "indexer.k_proj.weight", t[nq:]
                yield d + "indexer.q_norm.weight", w(a + "indexer.q_layernorm.weight") + 1
                yield d + "indexer.k_norm.weight", w(a + "indexer.k_layernorm.weight") + 1
        m = s + "mlp."
        yield d + "ffn_gate_inp.weight", w(m + "gate.weight")
        if m + "experts.gate_up_proj" in sd:
            t = w(m + "experts.gate_up_proj")
            f = t.shape[1] // 2
            yield d + "ffn_gate_exps.weight", t[:, :f]
            yield d + "ffn_up_exps.weight", t[:, f:]
            yield d + "ffn_down_exps.weight", w(m + "experts.down_proj")
        else:
            for n in ("gate", "up", "down"):
                yield (
                    d + f"ffn_{n}_exps.weight",
                    np.stack([w(f"{m}experts.{e}.{n}_proj.weight") for e in range(c("num_experts"))]),
                )
        for n in ("gate", "up", "down"):
            yield d + f"ffn_{n}_shexp.weight", w(m + f"shared_expert.{n}_proj.weight")
        yield d + "ffn_gate_inp_shexp.weight", w(m + "shared_expert_gate.weight").reshape(1, -1)
    left = sorted(k for k in sd if k not in used and not k.endswith("lm_head.weight"))
    if left:
        raise ValueError(f"weights without a place in GGUF: {left[:8]}")


def metadata(config, state_dict, name="model", file_type=0):
    c = lambda n, d=None: _get(config, n, d)  # noqa: E731
    n_layer = c("num_hidden_layers")
    rope = dict(c("rope_parameters") or {})
    types = list(c("layer_types"))
    linear = [t == "linear_attention" for t in types]
    sections = (list(rope.get("mrope_section", [11, 11, 10])) + [0, 0, 0, 0])[:4]
    kv = [("general.architecture", "str", ARCH), ("general.type", "str", "model"), ("general.name", "str", name)]

    def put(key, kind, value):
        kv.append((f"{ARCH}.{key}", kind, value))

    put("block_count", "u32", n_layer)
    put("context_length", "u32", c("max_position_embeddings"))
    put("embedding_length", "u32", c("hidden_size"))
    put("attention.head_count", "u32", c("num_attention_heads"))
    put("attention.head_count_kv", "u32", c("num_key_value_heads"))
    put("rope.dimension_sections", "arr:i32", sections)
    put("rope.freq_base", "f32", float(rope["rope_theta"]))
    put("attention.layer_norm_rms_epsilon", "f32", c("rms_norm_eps"))
    put("expert_count", "u32", c("num_experts"))
    put("expert_used_count", "u32", c("num_experts_per_tok"))
    put("attention.key_length", "u32", c("head_dim"))
    put("attention.value_length", "u32", c("head_dim"))
    kv.append(("general.file_type", "u32", file_type))
    put("expert_feed_forward_length", "u32", c("moe_intermediate_size"))
    put("expert_shared_feed_forward_length", "u32", c("shared_expert_intermediate_size"))
    put("ssm.conv_kernel", "u32", c("linear_conv_kernel_dim"))
    put("ssm.state_size", "u32", c("linear_key_head_dim"))
    put("ssm.group_count", "u32", c("linear_num_key_heads"))
    put("ssm.time_step_rank", "u32", c("linear_num_value_heads"))
    put("ssm.inner_size", "u32", c("linear_value_head_dim") * c("linear_num_value_heads"))
    put("attention.recurrent_layers", "arr:bool", linear)
    put("full_attention_interval", "u32", c("full_attention_interval") or 4)
    put("rope.dimension_count", "u32", int(c("head_dim") * rope.get("partial_rotary_factor", 0.25)))
    put("hyper_connection.count", "u32", c("hc_count"))
    put("hyper_connection.low_rank", "u32", c("hc_lowrank"))
    put("attention.indexer.head_count", "u32", c("indexer_n_heads"))
    put("attention.indexer.key_length", "u32", c("indexer_head_dim"))
    put("attention.indexer.top_k", "u32", c("indexer_budget"))
    put("attention.compress_ratios", "arr:i32", [0 if x else c("indexer_compress_ratio") for x in linear])
    ple = [i - 1 for i in (c("ple_layer_ids") or [])]
    if len(ple) > 1:
        raise ValueError("GGUF holds the constants of one PLE layer only")
    if ple:
        p = next(k for k in state_dict if k.endswith(f"layers.{ple[0]}.ple.ple_embedding.layer_multipliers"))[:-17]
        eos = c("eos_token_id")
        heads = (c("ngram_size") - 1) * c("heads_per_ngram")
        put("ple.layers", "arr:i32", ple)
        put("ple.ngram_size", "u32", c("ngram_size"))
        put("ple.heads_per_ngram", "u32", c("heads_per_ngram"))
        put("ple.conv_kernel", "u32", c("ple_conv_kernel_size"))
        put("ple.eos_token_id", "u32", int(eos[0] if isinstance(eos, (list, tuple)) else eos))
        put("embedding_length_per_layer_input", "u32", c("ple_embed_dim") // heads)
        put("ple.layer_multipliers", "arr:u64", [int(v) for v in _np(state_dict[p + "layer_multipliers"])])
        put("ple.head_offsets", "arr:u64", [int(v) for v in _np(state_dict[p + "ngram_heads_offsets"])])
        put("ple.head_vocab_sizes", "arr:u64", [int(v) for v in _np(state_dict[p + "ngram_heads_vocab_sizes"])])
    return kv


def tokenizer_metadata(tokenizer, vocab_size, pre="qwen35", eos=None, pad=None, bos=None, chat_template=None):
    """tokenizer: path of a tokenizer.json, its parsed dict, or a tokenizers.Tokenizer."""
    if isinstance(tokenizer, (str, os.PathLike)):
        with open(tokenizer, encoding="utf-8") as f:
            tokenizer = json.load(f)
    elif not isinstance(tokenizer, dict):
        inner = getattr(tokenizer, "backend_tokenizer", tokenizer)  # PreTrainedTokenizerFast
        tokenizer = json.loads(inner.to_str())
    model = tokenizer["model"]
    by_id = {i: t for t, i in model["vocab"].items()}
    kind = {i: 1 for i in by_id}  # normal
    for a in tokenizer.get("added_tokens", []):
        special = a.get("special") or (a["content"].startswith("<|") and a["content"].endswith("|>"))
        by_id[a["id"]], kind[a["id"]] = a["content"], 3 if special else 4  # control / user defined
    if max(by_id) >= vocab_size:
        raise ValueError(f"token id {max(by_id)} beyond the vocabulary of {vocab_size}")
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(vocab_size)]
    kinds = [kind.get(i, 5) for i in range(vocab_size)]  # 5: unused
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    kv = [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", pre),
        ("tokenizer.ggml.tokens", "arr:str", tokens),
        ("tokenizer.ggml.token_type", "arr:i32", kinds),
        ("tokenizer.ggml.merges", "arr:str", merges),
    ]
    ids = {t: i for i, t in enumerate(tokens)}
    for key, v in (("bos", bos), ("eos", eos), ("padding", pad)):
        if v is not None:
            kv.append((f"tokenizer.ggml.{key}_token_id", "u32", ids[v] if isinstance(v, str) else int(v)))
    kv.append(("tokenizer.ggml.add_bos_token", "bool", False))
    if chat_template:
        kv.append(("tokenizer.chat_template", "str", chat_template))
    return kv


def pick_type(name, shape, types):
    """Type name for a tensor. types: a type name, or {regex: type name} searched in order, "" as the default."""
    if (
        len(shape) <= 1
        or name.endswith("_norm.weight")
        or not name.endswith(".weight")
        or re.search(r"ffn_gate_inp(_shexp)?\.weight$|ssm_conv1d\.weight$", name)
    ):
        return "F32"
    if isinstance(types, str):
        want = types
    else:
        want = next((t for r, t in types.items() if r and re.search(r, name)), types.get("", "F32"))
    if shape[-1] % gguf_io.TYPES[want][1]:
        for alt in ("Q8_0", "F16"):  # row not whole blocks
            if shape[-1] % gguf_io.TYPES[alt][1] == 0:
                return alt
    return want


def export(
    state_dict,
    config,
    path,
    tokenizer=None,
    types="F32",
    name="model",
    file_type=None,
    imatrix=None,
    ggml_lib=None,
    tokenizer_args=None,
    extra_kv=(),
    shexp_1d=False,
):
    """Writes PATH. types as in pick_type. shexp_1d: ffn_gate_inp_shexp as [H] instead of [H,1]. imatrix: {GGUF tensor name: importance per input column}, optional.
    ggml_lib: path of ggml's base library, needed for K and IQ types (or set GGML_BASE_LIB)."""
    if file_type is None:
        main = types if isinstance(types, str) else next(iter(types.values()))
        file_type = FILE_TYPE.get(main, 0)
    kv = metadata(config, state_dict, name, file_type)
    if tokenizer is not None:
        args = dict(tokenizer_args or {})
        args.setdefault(
            "eos",
            _get(config, "eos_token_id")
            if not isinstance(_get(config, "eos_token_id"), list)
            else _get(config, "eos_token_id")[0],
        )
        kv += tokenizer_metadata(tokenizer, _get(config, "vocab_size"), **args)
    else:
        kv += [("tokenizer.ggml.model", "str", "none")]
    kv += list(extra_kv) + [("general.quantization_version", "u32", 2)]
    out = []
    for tname, arr in gguf_tensors(state_dict, config):
        if shexp_1d and "ffn_gate_inp_shexp" in tname:
            arr = arr.reshape(-1)
        t = pick_type(tname, arr.shape, types)
        im = (imatrix or {}).get(tname)
        out.append((tname, arr.shape, t, gguf_io.quantize(arr, t, im, ggml_lib)))
    gguf_io.write_gguf(path, kv, out)
    return [(n, s, t) for n, s, t, _ in out]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model_dir")
    ap.add_argument("out")
    ap.add_argument("--type", default="F32")
    ap.add_argument("--map", action="append", default=[], help="REGEX=TYPE, first match wins")
    a = ap.parse_args()
    from safetensors import safe_open

    sd = {}
    for f in sorted(os.listdir(a.model_dir)):
        if f.endswith(".safetensors"):
            with safe_open(os.path.join(a.model_dir, f), "pt") as h:
                sd.update({k: h.get_tensor(k) for k in h.keys()})
    with open(os.path.join(a.model_dir, "config.json")) as f:
        cfg = json.load(f)
    cfg = {**cfg, **cfg.get("text_config", {})}
    if "layer_types" not in cfg:
        n = cfg.get("full_attention_interval", 4)
        cfg["layer_types"] = [
            "full_attention" if (i + 1) % n == 0 else "linear_attention" for i in range(cfg["num_hidden_layers"])
        ]
    tok = os.path.join(a.model_dir, "tokenizer.json")
    types = {**dict(m.rsplit("=", 1) for m in a.map), "": a.type} if a.map else a.type
    for row in export(sd, cfg, a.out, tok if os.path.exists(tok) else None, types):
        print(*row)


if __name__ == "__main__":
    main()
