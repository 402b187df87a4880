"""Files as models: hyper-parameters, tensors and placement; other forms that are accepted; files of other kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_files
import gguf_io
import layout
import numpy as np
import pytest
from strata._core import model_info
from strata.errors import ConfigError, ModelFormatError

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
MODELS = sorted(p.name for p in DATA.glob("*.gguf"))
Image = bad_files.Image


@pytest.fixture
def info(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def read(image: Image, ratio_override: int = 0) -> dict[str, Any]:
        path = tmp_path / "m.gguf"
        path.write_bytes(image.bytes())
        return model_info(path, ratio_override)

    return read


@pytest.fixture
def refused(info: Callable[..., dict[str, Any]]) -> Callable[[Image, str], str]:
    def check(image: Image, text: str) -> str:
        with pytest.raises(ModelFormatError, match=text) as e:
            info(image)
        return str(e.value)

    return check


def rename(image: Image, old: str, new: str) -> None:
    image.tensor(old)[0] = new


def drop(image: Image, *names: str) -> None:
    image.t = [t for t in image.t if t[0] not in names]


def placements(i: dict[str, Any]) -> Counter[str]:
    return Counter(t["placement"] for t in i["tensors"])


@pytest.mark.parametrize("name", MODELS)
def test_good_models(name: str) -> None:
    """Every tensor that the oracle's layout check expects is used, each at the place its name says."""
    i = model_info(DATA / name)
    want = layout.check(gguf_io.GGUF(DATA / name))
    place = {t["name"]: t["placement"] for t in i["tensors"]}
    assert set(want) == {n for n, p in place.items() if p != "unused"}
    for n, p in place.items():
        assert p == ("streamed" if "_exps." in n else "by row" if n == "per_layer_token_embd.weight" else "resident")
    assert i["warnings"] == []
    resident = {t["name"]: t for t in i["tensors"] if t["placement"] == "resident"}
    assert {w["name"] for w in i["weights"]} == set(resident)
    for w in i["weights"]:
        t = resident[w["name"]]
        assert (w["cols"], w["rows"] * w["cols"]) == (t["ne"][0], np.prod(t["ne"]))
        assert (w["file"], w["offset"], w["bytes"]) == (t["file"], t["offset"], t["bytes"])
    by_name = {t["name"]: t for t in i["tensors"]}
    for n, layer in enumerate(i["experts"]):
        for part, m in layer.items():
            t = by_name[f"blk.{n}.ffn_{part}_exps.weight"]
            assert (m["cols"], m["rows"]) == t["ne"][:2]
            assert (m["offset"], m["bytes"] * t["ne"][2], m["stride"]) == (t["offset"], t["bytes"], m["bytes"])
        assert i["expert_bytes"][n] == sum(m["bytes"] for m in layer.values())


def test_hyper_parameters() -> None:
    h = model_info(DATA / "tiny-f32.gguf")["hparams"]
    kv = gguf_io.GGUF(DATA / "tiny-f32.gguf").kv
    got = {
        "block_count": h["n_layer"], "context_length": h["context_length"], "embedding_length": h["hidden"],
        "attention.head_count": h["n_head"], "attention.head_count_kv": h["n_head_kv"],
        "attention.key_length": h["head_dim"], "attention.layer_norm_rms_epsilon": h["eps"],
        "rope.dimension_count": h["n_rot"], "rope.freq_base": h["rope_base"], "expert_count": h["n_expert"],
        "expert_used_count": h["n_expert_used"], "expert_feed_forward_length": h["expert_width"],
        "expert_shared_feed_forward_length": h["shared_width"], "ssm.conv_kernel": h["conv_taps"],
        "ssm.state_size": h["state_dim"], "ssm.group_count": h["n_key_head"], "ssm.time_step_rank": h["n_value_head"],
        "hyper_connection.count": h["n_stream"], "hyper_connection.low_rank": h["mix_rank"],
        "attention.indexer.head_count": h["index_heads"], "attention.indexer.key_length": h["index_dim"],
        "attention.indexer.top_k": h["index_budget"], "attention.compress_ratios": h["ratio"],
        "attention.recurrent_layers": h["recurrent"], "ple.layers": [h["ple"]["layer"]],
        "ple.ngram_size": h["ple"]["ngram"], "ple.heads_per_ngram": h["ple"]["heads_per_ngram"],
        "ple.conv_kernel": h["ple"]["conv_taps"], "ple.eos_token_id": h["ple"]["reset_token"],
        "embedding_length_per_layer_input": h["ple"]["row_width"], "ple.layer_multipliers": h["ple"]["multipliers"],
        "ple.head_offsets": h["ple"]["head_offset"], "ple.head_vocab_sizes": h["ple"]["head_rows"],
    }  # fmt: skip
    assert got == {k: kv["qwen4exp." + k] for k in got}
    assert (h["n_vocab"], h["n_draft_block"]) == (512, 0)


def test_defaults(info: Callable) -> None:
    image = Image()
    h = info(image)["hparams"]
    assert h["head_dim"] == 32  # so the defaults below are others than the file's values
    for key in ("attention.recurrent_layers", "full_attention_interval", "attention.compress_ratios", "rope.freq_base"):
        image.drop(key)
    image.set("full_attention_interval", 2, "u8")  # layer 1 is the attention layer, as in the file
    h = info(image)["hparams"]
    assert (h["recurrent"], h["ratio"], h["rope_base"]) == ([True, False], [0, 0], 10000.0)
    image.drop("full_attention_interval")  # 4: no attention layer at all
    with pytest.raises(ModelFormatError, match=r"tensors are missing: 'blk.1.attn_qkv.weight'"):
        info(image)


def test_any_integer_kind_is_accepted(info: Callable) -> None:
    image = Image()
    want = info(image)["hparams"]
    image.set("block_count", 2, "u8")
    image.set("embedding_length", 64, "i64")
    image.set("attention.layer_norm_rms_epsilon", next(e[2] for e in image.kv if e[0].endswith("epsilon")), "f64")
    image.set("attention.recurrent_layers", [1, 0], "arr:u32")
    image.set("expert_feed_forward_length", [32, 32], "arr:i16")
    image.set("ple.layers", [0], "arr:u64")
    assert info(image)["hparams"] == want


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("expert_feed_forward_length", [32, 40], "arr:u32", "differs from layer to layer"),
        ("expert_feed_forward_length", [], "arr:u32", "is an empty array"),
        ("block_count", [2], "arr:u32", "of kind array, must be an integer"),
        ("block_count", True, "bool", "of kind bool, must be an integer"),
        ("block_count", 2.0, "f32", "of kind f32, must be an integer"),
        ("embedding_length", 2**63, "u64", "is 9223372036854775808, must be at least 1 and below 2.31"),
        ("attention.layer_norm_rms_epsilon", 1, "u32", "of kind u32, must be a float"),
        ("attention.layer_norm_rms_epsilon", 1e-300, "f64", "must be above 0"),
        ("attention.recurrent_layers", [2, 0], "arr:u8", "has the entry 2, must be 0 to 1"),
        ("attention.recurrent_layers", ["a", "b"], "arr:str", "array of string, must be one of bools"),
        ("attention.compress_ratios", [0, 65], "arr:u32", "has the entry 65, must be 0 to 64"),
        ("attention.compress_ratios", [0, 5], "arr:u32", "ratio 5, which does not divide"),
        ("context_length", 0, "u32", "context_length is 0"),
        ("rope.dimension_sections", [1, 2], "arr:i32", "has 2 entries, must have 4"),
        ("rope.scaling.factor", 4.0, "f32", "is 4.0.*rope scaling is not supported"),
        ("rope.scale_linear", 2.0, "f32", "rope scaling is not supported"),
        ("attention.scale", 0.5, "f32", "only 1/sqrt"),
        ("expert_weights_scale", 2.5, "f32", "only 1 is supported"),
        ("expert_weights_norm", False, "bool", "only normalised"),
        ("expert_group_count", 8, "u32", "expert groups"),
        ("expert_shared_feed_forward_length", 1 << 30, "u32", "has the shape"),
        ("attention.head_count", 1 << 30, "u32", "more than 2.31"),
        ("ssm.state_size", 1 << 30, "u32", r"ssm\.time_step_rank gives a width of 6442450944"),
        ("hyper_connection.count", 1 << 30, "u32", "more than 2.31"),
        ("tokenizer.ggml.bos_token_id", 512, "u32", "bos_token_id is 512, must be 0 to 511"),
        ("tokenizer.ggml.eot_token_id", 2**32 - 1, "u32", "eot_token_id is 4294967295"),
        ("tokenizer.ggml.eog_token_ids", [1, 512], "arr:i32", "has the entry 512, must be 0 to 511"),
        ("ple.image_token_id", 512, "u32", "image_token_id is 512"),
        ("tokenizer.ggml.tokens", 3, "u32", "of kind u32, must be an array of strings"),
        ("tokenizer.ggml.tokens", [1, 2], "arr:u32", "array of u32, must be one of strings"),
        ("ple.layer_multipliers", [1, -2, 3], "arr:i64", "has the entry -2"),
        ("general.architecture", 3, "u32", "of kind u32, must be a string"),
    ],
)
def test_metadata_that_is_refused(refused: Callable, key: str, value: object, kind: str, text: str) -> None:
    image = Image()
    image.set(key, value, kind)
    message = refused(image, text)
    assert key in message or "shape" in text or key == "ssm.state_size"


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("rope.scaling.type", "none", "str"),
        ("rope.scaling.factor", 1.0, "f32"),
        ("attention.scale", 32**-0.5, "f32"),
        ("attention.scale", 0.0, "f32"),
        ("expert_weights_norm", True, "bool"),
        ("expert_gating_func", 1, "u32"),
        ("feed_forward_length", 99, "u32"),
        ("an.unknown.key", [1.5], "arr:f64"),
        ("ple.image_token_id", 511, "u32"),
    ],
)
def test_metadata_that_changes_nothing(info: Callable, key: str, value: object, kind: str) -> None:
    image = Image()
    want = info(image)["hparams"]
    image.set(key, value, kind)
    assert info(image)["hparams"] == want


def test_yarn_with_factor_1(info: Callable) -> None:
    image = Image()
    image.set("rope.scaling.type", "yarn", "str")
    image.set("rope.scaling.factor", 1.0, "f32")
    info(image)


# ---------------------------------------------------------------- tensors


def test_trailing_dimensions_of_1(info: Callable) -> None:
    image = Image()
    for name, ne in (("blk.0.ffn_gate_inp_shexp.weight", [64, 1]), ("blk.0.ssm_a", [6, 1, 1, 1])):
        image.tensor(name)[1] = ne
    assert placements(info(image)) == placements(model_info(bad_files.BASE))


def test_fused_gate_and_up(info: Callable, tmp_path: Path) -> None:
    """Per expert F gate rows, then F up rows: the extents are the rows' own."""
    image = Image()
    for i in range(2):
        gate, up = (np.frombuffer(image.tensor(f"blk.{i}.ffn_{p}_exps.weight")[4], np.uint8) for p in ("gate", "up"))
        fused = np.concatenate([gate.reshape(8, -1), up.reshape(8, -1)], 1).tobytes()
        drop(image, f"blk.{i}.ffn_gate_exps.weight", f"blk.{i}.ffn_up_exps.weight")
        image.t.append([f"blk.{i}.ffn_gate_up_exps.weight", [64, 64, 8], 1, None, fused])
    got, plain = info(image), model_info(bad_files.BASE)
    assert got["expert_bytes"] == plain["expert_bytes"]
    assert placements(got) == {"resident": 56, "streamed": 4, "by row": 1}
    fused_file, plain_file = (tmp_path / "m.gguf").read_bytes(), Path(bad_files.BASE).read_bytes()
    for a, b in zip(got["experts"], plain["experts"], strict=True):
        for part in ("gate", "up", "down"):
            for e in range(8):
                x, y = a[part], b[part]
                assert (x["rows"], x["cols"], x["bytes"]) == (y["rows"], y["cols"], y["bytes"])
                at, want = x["offset"] + e * x["stride"], y["offset"] + e * y["stride"]
                assert fused_file[at : at + x["bytes"]] == plain_file[want : want + y["bytes"]]


def test_fused_qkv_on_an_attention_layer(info: Callable) -> None:
    image = Image()
    names = [f"blk.1.attn_{p}.weight" for p in "qkv"]
    data = b"".join(image.tensor(n)[4] for n in names)
    rows = [image.tensor(n)[1][1] for n in names]
    drop(image, *names)
    image.t.append(["blk.1.attn_qkv.weight", [64, sum(rows)], 1, None, data])
    got = info(image)
    parts = [w for w in got["weights"] if w["name"] == "blk.1.attn_qkv.weight"]
    start = next(t["offset"] for t in got["tensors"] if t["name"] == "blk.1.attn_qkv.weight")
    assert [w["rows"] for w in parts] == rows
    assert [w["offset"] - start for w in parts] == [0, rows[0] * 128, (rows[0] + rows[1]) * 128]
    image.t[-1][1] = [64, sum(rows) + 1]
    image.t[-1][4] = data + bytes(128)
    with pytest.raises(ModelFormatError, match="has the shape"):
        info(image)


def test_tied_output(info: Callable) -> None:
    image = Image()
    assert not info(image)["tied_output"]
    drop(image, "output.weight")
    assert info(image)["tied_output"]


def test_each_tensor_has_its_own_type(info: Callable) -> None:
    """Q4: gate, up and down of other types than each other, and other ones in every layer."""
    image = Image(DATA / "small-q8_0.gguf")
    types = [("IQ2_XS", "Q4_K", "Q2_0"), ("Q8_0", "IQ4_NL", "Q6_K"), ("F16", "Q5_0", "TQ2_0")]
    want = []
    for i, row in enumerate(types):
        sizes = []
        for part, name in zip(("gate", "up", "down"), row, strict=True):
            type_id, values, size = gguf_io.TYPES[name]
            t = image.tensor(f"blk.{i}.ffn_{part}_exps.weight")
            n = int(np.prod(t[1])) // values * size
            t[2], t[4] = type_id, bytes(n)
            sizes.append(n // t[1][2])
        want.append(sizes)
    got = info(image)
    assert [[m["bytes"] for m in layer.values()] for layer in got["experts"]] == want
    assert [tuple(m["type"] for m in layer.values()) for layer in got["experts"]] == types
    assert got["expert_bytes"] == [sum(s) for s in want]


@pytest.mark.parametrize(("heads", "width"), [(1, 32), (2, 16), (8, 4)])
def test_row_width_is_the_files_own(info: Callable, heads: int, width: int) -> None:
    """C2: the table's row width need not be what other files have; it must agree with heads and hidden size."""
    image = Image()
    n = 2 * heads
    image.set("ple.heads_per_ngram", heads)
    image.set("embedding_length_per_layer_input", width)
    image.set("ple.head_offsets", [10 * i for i in range(n)])
    image.set("ple.head_vocab_sizes", [10] * n)
    image.tensor("per_layer_token_embd.weight")[1:] = [[width, 10 * n], 1, None, bytes(2 * width * 10 * n)]
    h = info(image)["hparams"]["ple"]
    assert (h["row_width"], h["heads_per_ngram"], sum(h["head_rows"])) == (width, heads, 10 * n)
    image.set("embedding_length_per_layer_input", width + 1)
    with pytest.raises(ModelFormatError, match=f"is {width + 1}: times {n} heads .* must be embedding_length = 64"):
        info(image)


def test_table_must_cover_the_heads(refused: Callable) -> None:
    image = Image()
    sizes = next(e[2] for e in image.kv if e[0].endswith("head_vocab_sizes"))
    image.set("ple.head_vocab_sizes", [*sizes[:-1], sizes[-1] + 2000])
    refused(image, "head 7 takes .* rows from row .*, the table 'per_layer_token_embd.weight' has 1280")


def test_model_without_ngram_embedding(info: Callable, refused: Callable) -> None:
    image = Image()
    image.kv = [e for e in image.kv if ".ple." not in e[0] and not e[0].endswith("per_layer_input")]
    refused(image, "table of the n-gram embedding, but .*ple.layers names no layer")
    image.t = [t for t in image.t if "ple_" not in t[0] and t[0] != "per_layer_token_embd.weight"]
    got = info(image)
    assert got["hparams"]["ple"] is None
    assert placements(got) == {"resident": 50, "streamed": 6}
    image.set("ple.conv_kernel", 4, "u32")
    refused(image, "ple.conv_kernel is there, but ple.layers names no layer")


def test_model_without_tokenizer(info: Callable) -> None:
    image = Image()
    image.kv = [e for e in image.kv if not e[0].startswith("tokenizer.")]
    got = info(image)
    assert got["hparams"]["n_vocab"] == 512
    assert any("no tokenizer" in w for w in got["warnings"])


def test_vectors_are_floats(refused: Callable) -> None:
    image = Image()
    image.tensor("blk.0.hc_attn_norm.weight")[2:] = [8, None, bytes(272)]
    refused(image, "'blk.0.hc_attn_norm.weight' has the type Q8_0, must be F32, F16 or BF16")


@pytest.mark.parametrize("type_id", range(24, 29))
def test_plain_numbers_are_no_weights(refused: Callable, type_id: int) -> None:
    image = Image()
    image.tensor("blk.0.ffn_down_exps.weight")[2:] = [type_id, None, bytes(32 * 64 * 8 * 8)]
    refused(image, "'blk.0.ffn_down_exps.weight' has the type [IF][0-9]+, which no weight can have")


def test_unknown_tensors_are_not_an_error(info: Callable) -> None:
    image = Image()
    image.t.append(["extra.numbers", [4], 26, None, bytes(16)])
    got = info(image)
    assert placements(got)["unused"] == 1
    assert got["warnings"] == ["1 tensor of the file has a name that strata does not use: 'extra.numbers'."]


# ---------------------------------------------------------------- ratios


def test_all_ratios_zero(info: Callable) -> None:
    """Dense, as the file says; a sentence names the knob; the knob makes it sparse."""
    image = Image()
    image.set("attention.compress_ratios", [0, 0])
    got = info(image)
    assert got["hparams"]["ratio"] == [0, 0]
    assert len(got["warnings"]) == 1
    assert "qsa_ratio" in got["warnings"][0]
    assert placements(got)["unused"] == 4  # the indexer
    over = info(image, 4)
    assert (over["hparams"]["ratio"], over["warnings"]) == ([0, 4], [])
    assert "unused" not in placements(over)
    drop(image, *(t[0] for t in image.t if ".indexer." in t[0]))
    assert info(image)["hparams"]["ratio"] == [0, 0]
    with pytest.raises(ModelFormatError, match=r"4 tensors are missing: 'blk.1.indexer.q_proj.weight'"):
        info(image, 4)


def test_override_leaves_other_ratios(info: Callable) -> None:
    assert model_info(bad_files.BASE, 8)["hparams"]["ratio"] == [0, 4]
    image = Image(DATA / "tiny-f32.gguf")
    image.set("attention.compress_ratios", [0, 0, 0, 0, 4])
    assert info(image)["hparams"]["ratio"] == [0, 0, 0, 0, 4]
    got = info(image, 2)
    assert got["hparams"]["ratio"] == [0, 0, 2, 0, 4]
    assert "differs between layers (2 and 4)" in got["warnings"][0]


@pytest.mark.parametrize("ratio", [-1, 3, 65])
def test_override_out_of_range(ratio: int) -> None:
    with pytest.raises(ConfigError) as e:
        model_info(bad_files.BASE, ratio)
    assert (e.value.knob, e.value.value) == ("qsa_ratio", str(ratio))


# ---------------------------------------------------------------- draft heads, other kinds


def with_draft_head() -> Image:
    """tiny-ties with a third block that is a draft head."""
    image = Image()
    for t in [t for t in image.t if t[0].startswith("blk.1.")]:
        image.t.append([t[0].replace("blk.1.", "blk.2."), *t[1:]])
    image.t.append(["blk.2.nextn.eh_proj.weight", [128, 64], 1, None, bytes(128 * 64 * 2)])
    image.set("block_count", 3)
    image.set("nextn_predict_layers", 1, "u32")
    image.set("attention.recurrent_layers", [True, False, False])
    image.set("attention.compress_ratios", [0, 4, 0])
    return image


def test_draft_head_is_skipped(info: Callable) -> None:
    got = info(with_draft_head())
    h = got["hparams"]
    assert (h["n_layer"], h["n_draft_block"], h["ratio"], len(got["experts"])) == (2, 1, [0, 4], 2)
    assert {t["name"].split(".")[1] for t in got["tensors"] if t["placement"] == "unused"} == {"2"}
    assert got["warnings"] == []


def test_file_that_is_only_a_draft_head(refused: Callable) -> None:
    image = with_draft_head()
    image.t = [t for t in image.t if not t[0].startswith(("blk.0.", "blk.1."))]
    refused(image, "holds a draft head only")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "general.architecture",
            "qwen3moe",
            "is 'qwen3moe': strata runs .* only; the file itself is intact",
        ),
        ("general.architecture", "clip", "multimodal projector"),
        ("general.architecture", "qwen4_exp", "another dialect"),
        ("general.architecture", "a\x1b[2J", r"is 'a\\x1b\[2J'"),
        ("general.type", "mmproj", "multimodal projector"),
        ("general.type", "adapter", "LoRA adapter"),
        ("general.type", "imatrix", "importance figures"),
    ],
)
def test_files_of_other_kinds(refused: Callable, key: str, value: str, text: str) -> None:
    """L8: what the file is, not that it is damaged."""
    image = Image()
    image.set(key, value, "str")
    message = refused(image, text)
    assert "cut off or damaged" not in message


def test_vocabulary_file(refused: Callable) -> None:
    image = Image()
    image.t = []
    refused(image, "holds no tensors")


def test_renamed_tensor(refused: Callable) -> None:
    """L8: what was expected and what is there instead."""
    image = Image()
    rename(image, "blk.0.ffn_down_exps.weight", "blk.0.ffn_down_experts.weight")
    message = refused(image, r"a tensor is missing: 'blk.0.ffn_down_exps.weight' \[32, 64, 8\]")
    assert "'blk.0.ffn_down_experts.weight' [32, 64, 8]" in message
    assert "not cut off" in message


def test_table_of_the_other_dialect(refused: Callable) -> None:
    image = Image()
    rename(image, "per_layer_token_embd.weight", "ple_ngram_embd.weight")
    refused(image, r"'per_layer_token_embd.weight' \[8, any\].*'ple_ngram_embd.weight' \[8, 1280\]")


def test_second_level_scales(refused: Callable, info: Callable) -> None:
    image = Image()
    image.t.append(["blk.0.ffn_down_exps.scale", [8], 0, None, bytes(32)])
    refused(image, "'blk.0.ffn_down_exps.scale' is a second-level scale.*NVFP4")
    draft = with_draft_head()
    draft.t.append(["blk.2.ffn_down_exps.scale", [8], 0, None, bytes(32)])
    info(draft)
