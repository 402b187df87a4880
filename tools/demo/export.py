"""Checkpoint folder -> GGUF.  Run: python export.py CKPT_DIR tokenizer.json OUT.gguf [f32]   (needs GGML_BASE_LIB = ggml's base library for K types)

With CKPT_DIR/experts.npz (written by train.py --qat) the experts' packed bytes are stored as they are: IQ2_XS gate/up, Q2_0 down. Without it, or with "f32", they are
quantised by ggml (or kept in F32)."""

import os, sys
import numpy as np, torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "tests", "oracle"))
import export_gguf as X, gguf_io
from model import CFG
from train import load_packed

TYPES = {
    r"^token_embd": "Q6_K",
    r"^per_layer_token_embd": "IQ4_NL",
    r"ffn_(gate|up)_exps": "IQ2_XS",
    r"ffn_down_exps": "Q2_0",
    r"hc_(attn|ffn|)_?up|ffn_down_shexp": "Q8_0",
    r"inject|ssm_(alpha|beta)": "Q8_0",
    r"ple_conv1d": "F32",
    r"attn_(qkv|gate|q|k|v|output)\.|ssm_out|ffn_(gate|up)_shexp|ple_key": "Q5_K",
    "": "Q6_K",
}


def main(ck, tok, out, f32=None):
    sd = load_packed(ck)
    lib = os.environ.get("GGML_BASE_LIB")
    packed = {}
    p = os.path.join(ck, "experts.npz")
    if os.path.exists(p) and not f32:
        z = np.load(p)
        I = CFG["moe_intermediate_size"]
        for n in z.files:
            d = "blk." + n.split(".")[2]
            if n.endswith("gate_up_proj"):
                packed[d + ".ffn_gate_exps.weight"], packed[d + ".ffn_up_exps.weight"] = z[n][:, :I], z[n][:, I:]
            else:
                packed[d + ".ffn_down_exps.weight"] = z[n]
    kv = (
        X.metadata(CFG, sd, "strata demo", 0 if f32 else 20)
        + X.tokenizer_metadata(tok, CFG["vocab_size"], eos=CFG["eos_token_id"])
        + [("general.license", "str", "see LICENSE-NOTE.md"), ("general.quantization_version", "u32", 2)]
    )
    rows, size = [], {}
    for name, arr in X.gguf_tensors(sd, CFG):
        t = "F32" if f32 else X.pick_type(name, arr.shape, TYPES)
        if name in packed:
            b = packed[name]
            b = np.ascontiguousarray(b).reshape(-1, b.shape[-1])
        else:
            b = gguf_io.quantize(arr, t, None, lib)
        rows.append((name, arr.shape, t, b))
        k = ("experts" if "_exps" in name else "resident", t)
        size[k] = size.get(k, 0) + b.nbytes
    gguf_io.write_gguf(out, kv, rows)
    for k, v in sorted(size.items()):
        print(*k, f"{v / 1e6:.2f} MB")
    print("file", os.path.getsize(out) / 1e6, "MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
