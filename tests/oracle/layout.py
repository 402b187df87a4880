"""Check that a GGUF file is a complete and consistent qwen4exp model (docs/file-format.md, sections 2, 3, 8).

    python layout.py FILE.gguf ...
As a module: layout.check(gguf_io.GGUF(path)) returns {tensor name: expected ne}; raises LayoutError.
layout.expected(kv, kinds, table_rows) is the part that needs the metadata only.
"""

import math
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_io

INT = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"}


class LayoutError(ValueError):
    pass


def need(ok, text):
    if not ok:
        raise LayoutError(text)


def check(g):
    t = g.tensors.get("per_layer_token_embd.weight")
    want = expected(
        g.kv, g.kinds, t.ne[1] if t is not None and len(t.ne) == 2 else None, "output.weight" not in g.tensors
    )
    for n, ne in want.items():
        need(n in g.tensors, f"tensor {n} is missing")
        t = g.tensors[n]
        have = list(t.ne)
        while len(have) > len(ne) and have[-1] == 1:
            have.pop()
        need(have == ne, f"tensor {n} has shape {t.ne}, expected {ne}")
        need(t.type not in ("I8", "I16", "I32", "I64", "F64"), f"tensor {n} has type {t.type}")
        if is_float(n):
            need(t.type in ("F32", "F16", "BF16"), f"tensor {n} has type {t.type}")
    return want


def is_float(name):
    """Vectors that are never quantised."""
    return re.search(r"norm[a-z_]*\.weight$|ssm_a$|\.bias$", name) is not None


def expected(kv, kinds, table_rows, tied=False):
    def get(key, kind="int", default=None, required=True):
        key = key if key.startswith(("general.", "tokenizer.")) else "qwen4exp." + key
        if key not in kv:
            need(not required or default is not None, f"{key} is missing")
            return default
        v, k = kv[key], kinds[key]
        if kind == "int":
            need(k in INT and 0 <= v < 1 << 31, f"{key}: integer expected, got {k} {v!r}")
        elif kind == "float":
            need(k in ("f32", "f64") and math.isfinite(v), f"{key}: finite float expected")
        elif kind == "str":
            need(k == "str", f"{key}: string expected")
        else:  # list of int, bool or string
            sub = k[4:] if k.startswith("arr:") else ""
            okay = {"ints": INT, "bools": INT | {"bool"}, "strs": {"str"}}[kind]
            need(sub in okay, f"{key}: array of {kind} expected, got {k}")
            need(kind != "ints" or all(x >= 0 for x in v), f"{key}: negative entry")
        return v

    need(get("general.architecture", "str") == "qwen4exp", "not a qwen4exp file")
    blocks = get("block_count")
    nextn = get("nextn_predict_layers", default=0)
    need(0 < blocks <= 1024 and nextn < blocks, "bad block_count")
    L = blocks - nextn
    H, nh = get("embedding_length"), get("attention.head_count")
    need(H > 0 and nh > 0, "bad sizes")
    nkv = get("attention.head_count_kv", default=nh)
    hd = get("attention.key_length", default=H // nh)
    need(nkv > 0 and nh % nkv == 0, "head_count_kv does not divide head_count")
    need(hd > 0 and get("attention.value_length", default=hd) == hd, "key and value lengths differ")
    need(get("attention.layer_norm_rms_epsilon", "float") > 0, "eps must be positive")
    need(get("rope.freq_base", "float", 10000.0) > 0, "frequency base must be positive")
    need(get("rope.scaling.type", "str", "none") == "none", "rope scaling is not supported")
    E, used = get("expert_count"), get("expert_used_count")
    need(0 < used <= E <= 4096, "bad expert counts")
    need(get("expert_gating_func", default=1) == 1, "gating function is not softmax")
    F, Fs = get("expert_feed_forward_length"), get("expert_shared_feed_forward_length")
    taps, D, nk, nv = (get("ssm." + k) for k in ("conv_kernel", "state_size", "group_count", "time_step_rank"))
    need(taps > 1 and D > 0 and nk > 0 and nv > 0 and nv % nk == 0, "bad ssm sizes")
    need(get("ssm.inner_size") == nv * D, "ssm.inner_size is not heads x size")
    S, R = get("hyper_connection.count"), get("hyper_connection.low_rank")
    need(S > 1 and R > 0, "bad hyper_connection sizes")
    ih, idim, budget = (get("attention.indexer." + k) for k in ("head_count", "key_length", "top_k"))
    need(ih > 0 and idim > 0 and budget > 0, "bad indexer sizes")
    rot = get("rope.dimension_count", default=hd)
    need(rot % 2 == 0 and 0 < rot <= min(hd, idim), "bad rope.dimension_count")
    lin = get("attention.recurrent_layers", "bools", required=False)
    if lin is None:
        n = get("full_attention_interval", default=4)
        need(n > 0, "full_attention_interval is 0")
        lin = [(i + 1) % n != 0 for i in range(blocks)]
    need(len(lin) >= L, "too few entries in recurrent_layers")
    ratios = get("attention.compress_ratios", "ints", [0] * blocks, False)
    need(len(ratios) >= L and all(0 <= r <= 64 for r in ratios), "bad compress_ratios")
    need(all(r == 0 or budget % r == 0 for r in ratios), "indexer budget is no multiple of the ratio")

    vocab = len(get("tokenizer.ggml.tokens", "strs"))
    need(len(get("tokenizer.ggml.token_type", "ints")) == vocab, "token_type and tokens differ in length")
    for k in ("eos", "bos", "padding"):
        need(get(f"tokenizer.ggml.{k}_token_id", default=0, required=False) < vocab, f"{k} token beyond the vocabulary")

    ple = get("ple.layers", "ints", [], False)
    need(len(ple) <= 1 and all(0 <= i < L and lin[i] for i in ple), "bad ple.layers")
    want = {
        "token_embd.weight": [H, vocab],
        "output_hc_norm.weight": [S * H],
        "output_hc_down.weight": [S * H, R],
        "output_hc_up.weight": [R, S * H],
    }
    if not tied:
        want["output.weight"] = [H, vocab]
    if ple:
        N, hpn, ptaps = get("ple.ngram_size"), get("ple.heads_per_ngram"), get("ple.conv_kernel")
        heads = (N - 1) * hpn
        need(2 <= N <= 8 and 0 < heads <= 64 and ptaps > 0, "bad n-gram sizes")
        need(get("ple.eos_token_id") < vocab, "reset token beyond the vocabulary")
        w = get("embedding_length_per_layer_input")
        need(w * heads == H, "row width x heads is not H")
        need(len(get("ple.layer_multipliers", "ints")) >= N, "too few multipliers")
        off, voc = get("ple.head_offsets", "ints"), get("ple.head_vocab_sizes", "ints")
        need(len(off) >= heads and len(voc) >= heads, "too few head ranges")
        need(all(v > 0 for v in voc[:heads]), "a head without rows")
        need(table_rows is not None, "per_layer_token_embd.weight is missing")
        need(all(o + v <= table_rows for o, v in zip(off[:heads], voc[:heads], strict=True)), "head ranges beyond")
        want["per_layer_token_embd.weight"] = [w, table_rows]
        b = f"blk.{ple[0]}."
        want |= {
            b + "ple_key.weight": [H, S * H],
            b + "ple_value.weight": [H, H],
            b + "ple_conv1d.weight": [ptaps, S * H],
        }
        want |= {b + f"ple_norm_{n}.weight": [S * H] for n in ("key", "query", "conv")}
    C = 2 * nk * D + nv * D
    for i in range(L):
        b = f"blk.{i}."
        for p in ("hc_attn", "hc_ffn"):
            want |= {
                b + p + "_norm.weight": [S * H],
                b + p + "_down.weight": [S * H, R],
                b + p + "_up.weight": [R, S * H],
                b + p + "_inject.weight": [S * H, S],
            }
        if lin[i]:
            want |= {
                b + "attn_qkv.weight": [H, C],
                b + "attn_gate.weight": [H, nv * D],
                b + "ssm_alpha.weight": [H, nv],
                b + "ssm_beta.weight": [H, nv],
                b + "ssm_conv1d.weight": [taps, C],
                b + "ssm_dt.bias": [nv],
                b + "ssm_a": [nv],
                b + "ssm_norm.weight": [D],
                b + "ssm_out.weight": [nv * D, H],
            }
        else:
            want |= {
                b + "attn_q.weight": [H, 2 * hd * nh],
                b + "attn_k.weight": [H, hd * nkv],
                b + "attn_v.weight": [H, hd * nkv],
                b + "attn_output.weight": [hd * nh, H],
                b + "attn_q_norm.weight": [hd],
                b + "attn_k_norm.weight": [hd],
                b + "indexer.q_proj.weight": [H, ih * idim],
                b + "indexer.k_proj.weight": [H, idim],
                b + "indexer.q_norm.weight": [idim],
                b + "indexer.k_norm.weight": [idim],
            }
        want |= {
            b + "ffn_gate_inp.weight": [H, E],
            b + "ffn_gate_exps.weight": [H, F, E],
            b + "ffn_up_exps.weight": [H, F, E],
            b + "ffn_down_exps.weight": [F, H, E],
            b + "ffn_gate_inp_shexp.weight": [H],
            b + "ffn_gate_shexp.weight": [H, Fs],
            b + "ffn_up_shexp.weight": [H, Fs],
            b + "ffn_down_shexp.weight": [Fs, H],
        }
    return want


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, len(check(gguf_io.GGUF(path))), "tensors as expected")
