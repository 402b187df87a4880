"""A file with the published model's sizes and no data (a sparse file of 70 GB): its figures, and 64-bit extents."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import bad_files
import export_gguf
import gguf_io
import layout
import numpy as np
import pytest
from strata import inspect

H, LAYERS, EXPERTS, WIDTH, VOCAB = 2560, 48, 512, 640, 248320
HEAD_ROWS = [20_000_000 + n for n in (3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171)]
TABLE_ROWS = 320_001_536


def metadata() -> list[tuple[str, str, object]]:
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(LAYERS)]
    config = {
        "vocab_size": VOCAB, "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": 24,
        "num_key_value_heads": 2, "head_dim": 256, "rms_norm_eps": 1e-6, "layer_types": kinds,
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH,
        "num_experts": EXPERTS, "num_experts_per_tok": 10, "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [2],
        "ple_embed_dim": H, "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8, "eos_token_id": 248044,
        "indexer_n_heads": 4, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 4,
        "max_position_embeddings": 262144,
    }  # fmt: skip
    p = "layers.1.ple.ple_embedding."
    constants = {
        p + "layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071]),
        p + "ngram_heads_vocab_sizes": np.array(HEAD_ROWS),
        p + "ngram_heads_offsets": np.cumsum([0, *HEAD_ROWS[:-1]]),
    }
    kv = export_gguf.metadata(config, constants)
    kv += [
        ("tokenizer.ggml.tokens", "arr:str", [f"token{i}" for i in range(VOCAB)]),
        ("tokenizer.ggml.token_type", "arr:i32", [1] * VOCAB),
        ("tokenizer.ggml.merges", "arr:str", [f"left{i} right{i}" for i in range(247_000)]),
        ("tokenizer.ggml.eos_token_id", "u32", 248046),
    ]
    return kv


def type_of(name: str, ne: list[int]) -> str:
    if "_exps." in name:
        return "Q2_0" if "down" in name else "IQ2_XS"
    if name == "per_layer_token_embd.weight":
        return "IQ4_NL"
    return "F32" if layout.is_float(name) or ne[0] % 32 else "Q8_0"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kv = metadata()
    want = layout.expected({k: v for k, _, v in kv}, {k: t for k, t, _ in kv}, TABLE_ROWS)
    image = bad_files.Image()
    image.kv = [list(e) for e in kv]
    image.t, end = [], 0
    for name, ne in want.items():
        type_id, values, size = gguf_io.TYPES[type_of(name, ne)]
        image.t.append([name, ne, type_id, end, b""])
        end += -(-(math.prod(ne) // values * size) // 32) * 32
    path = tmp_path_factory.mktemp("published") / "model.gguf"
    head = image.bytes()
    path.write_bytes(head)
    try:
        os.truncate(path, len(head) + end)
    except OSError as e:
        pytest.skip(f"no sparse files of this size here: {e}")
    return path


def test_figures(published: Path) -> None:
    began = time.monotonic()
    info = inspect.inspect(published)
    assert time.monotonic() - began < 5  # the header of 12.9 MB is all that is read
    assert len(info.tensors) == 1224
    assert sum(math.prod(t.ne) for t in info.tensors) == pytest.approx(176.94e9, rel=1e-4)
    assert info.expert_bytes == (1_408_000,) * LAYERS
    by_placement = info.bytes_by_placement
    assert by_placement["streamed"] == LAYERS * EXPERTS * 1_408_000
    assert by_placement["by row"] == TABLE_ROWS * 90
    assert "unused" not in by_placement
    assert info.total_bytes == published.stat().st_size > 60e9
    assert info.warnings == ()
    h = info.hparams
    assert (h["n_layer"], h["n_vocab"], h["n_rot"], h["ratio"][3::4]) == (48, VOCAB, 64, [4] * 12)
    assert h["ple"]["head_offset"][:3] == [0, 20_000_003, 40_000_026]
    assert max(t.offset for t in info.tensors) > 2**33
