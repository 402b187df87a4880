"""A model file with the published model's layer shapes and random weights, for speed alone (its text is noise).

    python bench/synth.py OUT.gguf --gate IQ2_XS --down Q2_0 [--dense Q8_0] [--experts 128] [--layers 4]

2560 wide, experts of 640, every fourth layer attention, the others delta-net, the second with the n-gram block.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "quant"), str(TESTS / "cpu")]

import cpu_cases  # noqa: E402
import gguf_io  # noqa: E402
import layout  # noqa: E402
import real_shapes  # noqa: E402
from export_gguf import metadata, tokenizer_metadata  # noqa: E402
from strata import _core  # noqa: E402


def rows_of(rng: np.random.Generator, name: str, rows: int, cols: int, std: float) -> np.ndarray:
    """A few hundred encoded rows of normal values, repeated: what is in the blocks does not change the work."""
    some = min(rows, 64)
    x = (rng.standard_normal((some, cols)) * std).astype(np.float32)
    raw = np.asarray(_core.quantize(name, x)).reshape(some, -1)
    return np.resize(raw, (rows, raw.shape[1]))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--gate", default="IQ2_XS")
    ap.add_argument("--down", default="IQ4_NL")
    ap.add_argument("--dense", default="Q8_0")
    ap.add_argument("--experts", type=int, default=128)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    rng = np.random.default_rng(a.seed)
    cfg = real_shapes.config(a.experts, 2048)
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(a.layers)]
    cfg.update(num_hidden_layers=a.layers, layer_types=kinds, full_attention_interval=4)
    sizes = [127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199]
    table = -(-sum(sizes) // 128) * 128
    p = "model.layers.1.ple.ple_embedding."
    state = {
        p + "layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071]),
        p + "ngram_heads_vocab_sizes": np.array(sizes),
        p + "ngram_heads_offsets": np.cumsum([0, *sizes[:-1]]),
    }
    kv = metadata(cfg, state, "bench", 7)
    kv += tokenizer_metadata(str(TESTS / "data" / "oracle" / "tokenizer.json"), 512, eos=498, pad=496)
    want = layout.expected({k: v for k, _, v in kv}, {k: t for k, t, _ in kv}, table)
    tensors = []
    for name, ne in want.items():
        shape, n = tuple(reversed(ne)), ne[0]
        leaf = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.rsplit(".", 1)[-1]
        if layout.is_float(name) or leaf in ("ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d", "ple_conv1d"):
            tname = "F16" if leaf == "ple_conv1d" else "F32"
            data = gguf_io.quantize(real_shapes.float_values(rng, leaf, shape).astype(np.float32), tname)
        else:
            tname = a.dense
            if "exps" in name:
                tname = a.down if "down" in name else a.gate
            if n % cpu_cases.TYPES[tname].block:
                tname = "Q8_0"
            std = 1.0 if "token_embd" in leaf else n**-0.5
            data = rows_of(rng, tname, int(np.prod(shape[:-1])), n, std)
        tensors.append((name, shape, tname, data))
    gguf_io.write_gguf(a.out, kv, tensors)


if __name__ == "__main__":
    main()
