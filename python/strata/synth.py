"""Makes model files of the real model's or the demo's shapes, of any size, with random weights.

Blocks of each tensor type are drawn once, as a pool of some MB, and every tensor is a walk through a pool from places
of its own, so a file is written as fast as the drive takes it and yet no two experts of a tensor are the same. Scales
are those of a trained model's weights, so that activations stay finite and routers spread their choices.

With a skew, the routers prefer some experts and the layers are predictable, as those of trained models are. `router`
says how.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata import _core, gguf_write
from strata.errors import InputError
from strata.gguf_write import Bytes, Tensor
from strata.tokenizer import CONTROL, NORMAL, UNUSED

ARCHITECTURE = "qwen4exp"
MAX_EXPERTS = 4096
MAX_LAYERS = 1024
MAX_SKEW = 4.0
NGRAM_LAYER = 1
TABLE = "per_layer_token_embd.weight"

DRAWN = 1 << 17  # values encoded per pool: some encoders take microseconds for each
POOL = 8 << 20  # bytes; the encoded blocks in random order
GROUP = 64  # values that stay together in it, where a block has fewer

# With a skew (see `router`): size of the token embedding against what the layers add; mean of its values in standard
# deviations; spread of an expert's logits over the tokens; gain and spread of what differs between the layers' inputs.
EMBEDDING = 16.0
MEAN = 0.5
SPREAD = 3.0
GATE_GAIN = 0.5
NORM_SPREAD = 0.05


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, and what `make` writes when nothing else is asked for."""

    hidden: int
    streams: int
    rank: int
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int
    sections: tuple[int, int, int, int]
    frequency_base: float
    key_heads: int
    value_heads: int
    state_dim: int
    index_heads: int
    index_dim: int
    index_budget: int
    index_ratio: int
    width: int
    shared_width: int
    used: int
    ngram_heads: int  # for each of the two n-gram lengths
    tied: bool
    layers: int
    experts: int
    vocab: int
    table_rows: int
    context: int


REAL = Shape(
    hidden=2560,
    streams=4,
    rank=320,
    heads=24,
    kv_heads=2,
    head_dim=256,
    rotated=64,
    sections=(11, 11, 10, 0),
    frequency_base=1e7,
    key_heads=16,
    value_heads=48,
    state_dim=128,
    index_heads=4,
    index_dim=128,
    index_budget=2048,
    index_ratio=4,
    width=640,
    shared_width=640,
    used=10,
    ngram_heads=8,
    tied=False,
    layers=48,
    experts=512,
    vocab=248320,
    table_rows=1_000_000,  # the model has 320 million: 29 GB that no prefill of a benchmark would touch
    context=262144,
)
DEMO = Shape(
    hidden=256,
    streams=4,
    rank=32,
    heads=4,
    kv_heads=2,
    head_dim=64,
    rotated=32,
    sections=(6, 5, 5, 0),
    frequency_base=1e4,
    key_heads=2,
    value_heads=4,
    state_dim=64,
    index_heads=4,
    index_dim=64,
    index_budget=128,
    index_ratio=16,
    width=128,
    shared_width=128,
    used=4,
    ngram_heads=4,
    tied=True,
    layers=8,
    experts=48,
    vocab=3072,
    table_rows=16242,
    context=4096,
)
SHAPES = {"real": REAL, "demo": DEMO}

PARTS = ("gate", "up", "down", "dense", "table")
TYPES = {"gate": "IQ2_XS", "up": "IQ2_XS", "down": "Q2_0", "dense": "Q8_0", "table": "IQ4_NL"}


@dataclass(frozen=True)
class Spec:
    """What is to be written. types: for each layer (the last entry: what belongs to no layer), part -> tensor type."""

    shape: Shape
    layers: int
    experts: int
    vocab: int
    table_rows: int
    context: int
    types: tuple[Mapping[str, str], ...]
    seed: int
    skew: float = 0.0

    def is_attention(self, layer: int) -> bool:
        return (layer + 1) % 4 == 0


def spec(
    like: str = "real",
    *,
    layers: int | None = None,
    experts: int | None = None,
    vocab: int | None = None,
    table_rows: int | None = None,
    context: int | None = None,
    types: str = "",
    types_at: tuple[str, ...] = (),
    size: int | None = None,
    seed: int = 0,
    skew: float = 0.0,
) -> Spec:
    """Checks the wishes and fills in the rest.

    types: "gate=IQ2_XS,down=Q2_0", parts as in PARTS. types_at: the same for some layers only, "0-3,7:gate=Q4_K". size:
    bytes of the file at most; what is free of layers and experts is chosen to come near. skew: 0, every expert is used
    alike; above, the spread of their popularity, see `router`. Raises InputError.
    """
    if like not in SHAPES:
        raise InputError(f"there is no shape {like!r}; the shapes are {', '.join(SHAPES)}.")
    shape = SHAPES[like]
    if not 0 <= skew <= MAX_SKEW:
        raise InputError(f"skew = {skew} is not allowed; allowed: 0 to {MAX_SKEW:g}.")
    if size is not None and layers is not None and experts is not None:
        raise InputError("with layers and experts given there is nothing left to choose for a size.")
    layers = _within("layers", layers, shape.layers if size is None else None, 2, MAX_LAYERS)
    experts = _within("experts", experts, shape.experts if size is None else None, shape.used, MAX_EXPERTS)
    base_types = TYPES | _parse_types(types)
    at = [_parse_layers(text) for text in types_at]

    def complete(n_layers: int, n_experts: int) -> Spec:
        per_layer = []
        for layer in range(n_layers):
            chosen = dict(base_types)
            for numbers, changed in at:
                if layer in numbers:
                    chosen |= changed
            per_layer.append(chosen)
        return Spec(
            shape,
            n_layers,
            n_experts,
            _within("vocab", vocab, shape.vocab, len(BYTES) + len(MERGES) + len(SPECIAL), 1 << 24),
            _within("table_rows", table_rows, shape.table_rows, 64 * shape.ngram_heads, 1 << 31),
            _within("context", context, shape.context, 1, (1 << 31) - 1),
            (*per_layer, base_types),
            _within("seed", seed, 0, 0, (1 << 63) - 1),
            skew,
        )

    if size is None:
        assert layers is not None and experts is not None
        result = complete(layers, experts)
    else:
        result = _of_size(complete, shape, layers, experts, size)
    for numbers, _ in at:
        if max(numbers) >= result.layers:
            raise InputError(f"there is no layer {max(numbers)}; the file has {result.layers}.")
    for tensor in tensors(result):
        _ = tensor.bytes  # raises where a row is not whole blocks
    return result


def _within(name: str, value: int | None, default: int | None, low: int, high: int) -> Any:
    if value is None:
        return default
    if not low <= value <= high:
        raise InputError(f"{name} = {value} is not allowed; allowed: {low} to {high}.")
    return value


def _of_size(
    complete: Callable[[int, int], Spec], shape: Shape, layers: int | None, experts: int | None, size: int
) -> Spec:
    """The largest file of at most `size`: as many layers as there is room for with the model's number of experts (at
    least 4, so that there is an attention layer; at most the model's), then as many experts."""

    def fits(n_layers: int, n_experts: int) -> bool:
        return file_bytes(complete(n_layers, n_experts)) <= size

    def most(low: int, high: int, fit: Callable[[int], bool]) -> int:
        """The largest number that fits; low when none does."""
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fit(middle) else (low, middle - 1)
        return low

    if experts is not None:
        given = experts
        layers = most(2, MAX_LAYERS, lambda n: fits(n, given))
    elif layers is None:
        layers = most(4, shape.layers, lambda n: fits(n, shape.experts))
    if experts is None:
        chosen = layers
        experts = most(shape.used, MAX_EXPERTS, lambda n: fits(chosen, n))
    result = complete(layers, experts)
    least = file_bytes(result)
    if least > size:
        raise InputError(
            f"a size of {size} bytes is too small: {layers} layers of {experts} experts take {least}; "
            "a smaller vocabulary or table makes room."
        )
    return result


def _parse_types(text: str) -> dict[str, str]:
    found = {}
    for item in filter(None, text.split(",")):
        part, _, name = item.partition("=")
        if part not in PARTS:
            raise InputError(f"there is no part {part!r} in {text!r}; the parts are {', '.join(PARTS)}.")
        if name not in gguf_write.types():
            raise InputError(f"there is no type {name!r}; the types are {', '.join(gguf_write.types())}.")
        found[part] = name
    return found


def _parse_layers(text: str) -> tuple[set[int], dict[str, str]]:
    """ "0-3,7:gate=Q4_K" -> the layers, and their types."""
    layers, _, types = text.partition(":")
    numbers: set[int] = set()
    for item in layers.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(f"{text!r} should begin with layers, such as 0-3,7:")
        numbers.update(range(int(match[1]), min(int(match[2] or match[1]), MAX_LAYERS) + 1))
    changed = _parse_types(types)
    if not changed:
        raise InputError(f"{text!r} should name types after the layers, such as 0-3:gate=Q4_K")
    if "table" in changed:
        raise InputError(f"{text!r}: the table belongs to no layer range.")
    return numbers, changed


# ------------------------------------------------------------------------------------------------- tokenizer


def _spelling() -> list[str]:
    """The byte-level spelling of the bytes 0 to 255 (docs/file-format.md, section 8)."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


BYTES = _spelling()
# Frequent pairs of English, each made of parts that stand before it.
MERGES = [
    *("h e", "i n", "r e", "o n", "a t", "e r", "n d", "o u", "i t", "e s", "o r", "i s", "l l", "s t", "in g", "e d"),
    *("Ġ t", "Ġ a", "Ġ s", "Ġ w", "Ġ o", "Ġ b", "Ġ c", "Ġt he", "Ġa nd", "Ġo f", "Ġt o", "Ġ in", "Ġ h"),
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def _tokenizer(vocab: int) -> list[tuple[str, str, Any]]:
    named = [*BYTES, *(m.replace(" ", "") for m in MERGES), *SPECIAL]
    plain = len(named) - len(SPECIAL)
    kinds = [NORMAL] * plain + [CONTROL] * len(SPECIAL) + [UNUSED] * (vocab - len(named))
    return [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", "qwen35"),
        ("tokenizer.ggml.tokens", "arr:str", named + [f"[PAD{i}]" for i in range(len(named), vocab)]),
        ("tokenizer.ggml.token_type", "arr:i32", kinds),
        ("tokenizer.ggml.merges", "arr:str", MERGES),
        ("tokenizer.ggml.eos_token_id", "u32", plain + SPECIAL.index("<|im_end|>")),
        ("tokenizer.ggml.padding_token_id", "u32", plain),
        ("tokenizer.ggml.add_bos_token", "bool", False),
    ]


# ------------------------------------------------------------------------------------------------- metadata


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, math.isqrt(n) + 1))


def table_primes(s: Spec) -> list[int]:
    """Rows of each head: consecutive primes, about table_rows in all."""
    primes: list[int] = []
    n = s.table_rows // (2 * s.shape.ngram_heads)
    while len(primes) < 2 * s.shape.ngram_heads:
        if _is_prime(n):
            primes.append(n)
        n += 1
    return primes


def multipliers(vocab: int, layer_rank: int = 0, seed: int = 1234) -> list[int]:
    """The hash multipliers of 3-grams, by the rule of docs/file-format.md, section 2."""
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    bound = max(1, ((1 << 63) - 1) // vocab // 2)
    found = []
    for i in range(3):
        z = (seed + 10007 * layer_rank + golden * (i + 2)) & mask  # splitmix64 adds golden once more
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        found.append(2 * ((z ^ (z >> 31)) % bound) + 1)
    return found


def metadata(s: Spec) -> list[tuple[str, str, Any]]:
    """The header's keys."""
    h = s.shape
    attention = [s.is_attention(i) for i in range(s.layers)]
    primes = table_primes(s)
    own: list[tuple[str, str, Any]] = [
        ("block_count", "u32", s.layers),
        ("context_length", "u32", s.context),
        ("embedding_length", "u32", h.hidden),
        ("attention.head_count", "u32", h.heads),
        ("attention.head_count_kv", "u32", h.kv_heads),
        ("attention.key_length", "u32", h.head_dim),
        ("attention.value_length", "u32", h.head_dim),
        ("attention.layer_norm_rms_epsilon", "f32", 1e-6),
        ("rope.dimension_count", "u32", h.rotated),
        ("rope.dimension_sections", "arr:i32", h.sections),
        ("rope.freq_base", "f32", h.frequency_base),
        ("expert_count", "u32", s.experts),
        ("expert_used_count", "u32", h.used),
        ("expert_feed_forward_length", "u32", h.width),
        ("expert_shared_feed_forward_length", "u32", h.shared_width),
        ("ssm.conv_kernel", "u32", 4),
        ("ssm.state_size", "u32", h.state_dim),
        ("ssm.group_count", "u32", h.key_heads),
        ("ssm.time_step_rank", "u32", h.value_heads),
        ("ssm.inner_size", "u32", h.value_heads * h.state_dim),
        ("attention.recurrent_layers", "arr:bool", [not a for a in attention]),
        ("full_attention_interval", "u32", 4),
        ("hyper_connection.count", "u32", h.streams),
        ("hyper_connection.low_rank", "u32", h.rank),
        ("attention.indexer.head_count", "u32", h.index_heads),
        ("attention.indexer.key_length", "u32", h.index_dim),
        ("attention.indexer.top_k", "u32", h.index_budget),
        ("attention.compress_ratios", "arr:i32", [h.index_ratio if a else 0 for a in attention]),
        ("ple.layers", "arr:i32", [NGRAM_LAYER]),
        ("ple.ngram_size", "u32", 3),
        ("ple.heads_per_ngram", "u32", h.ngram_heads),
        ("ple.conv_kernel", "u32", 4),
        ("ple.eos_token_id", "u32", len(BYTES) + len(MERGES)),
        ("embedding_length_per_layer_input", "u32", h.hidden // (2 * h.ngram_heads)),
        ("ple.layer_multipliers", "arr:u64", multipliers(s.vocab)),
        ("ple.head_offsets", "arr:u64", [sum(primes[:i]) for i in range(len(primes))]),
        ("ple.head_vocab_sizes", "arr:u64", primes),
    ]
    return [
        ("general.architecture", "str", ARCHITECTURE),
        ("general.type", "str", "model"),
        ("general.name", "str", "synthetic"),
        ("general.description", "str", f"random weights, seed {s.seed}" + (f", skew {s.skew:g}" if s.skew else "")),
        *((f"{ARCHITECTURE}.{key}", kind, value) for key, kind, value in own),
        *_tokenizer(s.vocab),
        ("general.quantization_version", "u32", 2),
    ]


def tensors(s: Spec) -> list[Tensor]:
    """Every tensor in the order of the file."""
    h = s.shape
    wide, inner = h.streams * h.hidden, h.value_heads * h.state_dim
    channels = 2 * h.key_heads * h.state_dim + inner
    found: list[Tensor] = []

    def dense(name: str, *ne: int, layer: int = -1) -> None:
        """A matrix in the type of the dense ones, or the nearest one its rows are whole blocks of."""
        for type in (s.types[layer]["dense"], "Q8_0", "F16"):
            if ne[0] % gguf_write.types()[type][1] == 0:
                found.append(Tensor(name, ne, type))
                return

    def plain(name: str, *ne: int, type: str = "F32") -> None:
        found.append(Tensor(name, ne, type))

    def mixing(name: str, layer: int = -1, inject: bool = True) -> None:
        plain(f"{name}_norm.weight", wide)
        dense(f"{name}_down.weight", wide, h.rank, layer=layer)
        dense(f"{name}_up.weight", h.rank, wide, layer=layer)
        if inject:
            dense(f"{name}_inject.weight", wide, h.streams, layer=layer)

    dense("token_embd.weight", h.hidden, s.vocab)
    if not h.tied:
        dense("output.weight", h.hidden, s.vocab)
    mixing("output_hc", inject=False)
    rows = -(-sum(table_primes(s)) // 128) * 128
    found.append(Tensor(TABLE, (h.hidden // (2 * h.ngram_heads), rows), s.types[-1]["table"]))
    for i in range(s.layers):
        b = f"blk.{i}."
        if i == NGRAM_LAYER:
            dense(b + "ple_key.weight", h.hidden, wide, layer=i)
            dense(b + "ple_value.weight", h.hidden, h.hidden, layer=i)
            for n in ("key", "query", "conv"):
                plain(b + f"ple_norm_{n}.weight", wide)
            plain(b + "ple_conv1d.weight", 4, wide, type="F16")
        mixing(b + "hc_attn", i)
        mixing(b + "hc_ffn", i)
        if s.is_attention(i):
            dense(b + "attn_q.weight", h.hidden, 2 * h.head_dim * h.heads, layer=i)
            dense(b + "attn_k.weight", h.hidden, h.head_dim * h.kv_heads, layer=i)
            dense(b + "attn_v.weight", h.hidden, h.head_dim * h.kv_heads, layer=i)
            dense(b + "attn_output.weight", h.head_dim * h.heads, h.hidden, layer=i)
            plain(b + "attn_q_norm.weight", h.head_dim)
            plain(b + "attn_k_norm.weight", h.head_dim)
            dense(b + "indexer.q_proj.weight", h.hidden, h.index_heads * h.index_dim, layer=i)
            dense(b + "indexer.k_proj.weight", h.hidden, h.index_dim, layer=i)
            plain(b + "indexer.q_norm.weight", h.index_dim)
            plain(b + "indexer.k_norm.weight", h.index_dim)
        else:
            dense(b + "attn_qkv.weight", h.hidden, channels, layer=i)
            dense(b + "attn_gate.weight", h.hidden, inner, layer=i)
            dense(b + "ssm_alpha.weight", h.hidden, h.value_heads, layer=i)
            dense(b + "ssm_beta.weight", h.hidden, h.value_heads, layer=i)
            plain(b + "ssm_conv1d.weight", 4, channels)
            plain(b + "ssm_dt.bias", h.value_heads)
            plain(b + "ssm_a", h.value_heads)
            plain(b + "ssm_norm.weight", h.state_dim)
            dense(b + "ssm_out.weight", inner, h.hidden, layer=i)
        plain(b + "ffn_gate_inp.weight", h.hidden, s.experts)
        for part, ne in (("gate", (h.hidden, h.width)), ("up", (h.hidden, h.width)), ("down", (h.width, h.hidden))):
            found.append(Tensor(b + f"ffn_{part}_exps.weight", (*ne, s.experts), s.types[i][part]))
        plain(b + "ffn_gate_inp_shexp.weight", h.hidden, 1)
        dense(b + "ffn_gate_shexp.weight", h.hidden, h.shared_width, layer=i)
        dense(b + "ffn_up_shexp.weight", h.hidden, h.shared_width, layer=i)
        dense(b + "ffn_down_shexp.weight", h.shared_width, h.hidden, layer=i)
    return found


def file_bytes(s: Spec) -> int:
    """Size of the file, without making it."""
    named = len(BYTES) + len(MERGES) + len(SPECIAL)
    found = tensors(s)
    head = len(gguf_write.header(metadata(dataclasses.replace(s, vocab=named)), found)) + _padding_bytes(named, s.vocab)
    return gguf_write.padded(head) + gguf_write.data_bytes(found)


@cache
def _padding_bytes(first: int, end: int) -> int:
    """What the unused tokens take in the header: spelling with its length, and kind."""
    return sum(8 + len(f"[PAD{i}]") + 4 for i in range(first, end))


# ------------------------------------------------------------------------------------------------- weights


def router(rng: np.random.Generator, s: Spec, layer: int) -> NDArray[np.float32]:
    """The router of a layer: for each expert a row of `hidden` values.

    Logits get a standard deviation of about 3, as a trained router's have: a clear choice, not one expert with all
    weight. Without a skew each row is random, so every expert is used alike.

    With one, an expert's popularity p (share of tokens that choose it) is log-normal with that spread (`popularity`).
    The values of the token embedding have a mean of MEAN standard deviations, so all hidden states share the direction
    (1, ..., 1). A router's row is a random direction plus a part along the shared one, which works as a bias: it puts
    the expert's logit, normal over the tokens, above 0 for a share p of them, so that K experts of a token are above 0
    on average. Layers are predictable because the token embedding is large (EMBEDDING) against what the layers add to
    the streams, so that all routers see nearly the same vector. What differs between layers is the gain of the mixing
    gate before the router (GATE_GAIN) and the norm's values (NORM_SPREAD), set so that the next layer's router, put on
    this layer's input, names 80-90 % of the choices. A token's choices depend on little but the token itself.
    """
    if not s.skew:
        return _normal(rng, s.experts * s.shape.hidden, 3 / math.sqrt(s.shape.hidden))
    # The router's input: half of the normalised embedding, whose values have a mean and a deviation of
    size = 0.5 / math.sqrt(1 + MEAN**2)
    mean, deviation = MEAN * size, size
    normal = statistics.NormalDist()
    share = rng.permutation(popularity(s.experts, s.shape.used, s.skew))
    bias = np.array([-SPREAD * normal.inv_cdf(1 - p) for p in share.tolist()], np.float32)
    rows = _normal(rng, s.experts * s.shape.hidden, SPREAD / (deviation * math.sqrt(s.shape.hidden)))
    rows = rows.reshape(s.experts, s.shape.hidden)
    # A row's own part has no share in the common direction.
    rows += (bias / np.float32(mean * s.shape.hidden) - rows.mean(1))[:, None]
    return rows.reshape(-1)


def popularity(experts: int, used: int, skew: float) -> NDArray[np.float64]:
    """Share of tokens that choose each expert, rising; they add up to `used`.

    Weights are the quantiles of a log-normal distribution with spread `skew`. A share is that of at least one of a
    number of draws by weight: no expert is chosen by more than all tokens.
    """
    normal = statistics.NormalDist()
    weights = np.exp([skew * normal.inv_cdf((i + 0.5) / experts) for i in range(experts)])
    weights /= weights.sum()
    low, high = 0.0, 1.0
    while -np.expm1(-high * weights).sum() < used * (1 - 1e-9):
        high *= 2
        if high > 1e300:
            break
    for _ in range(100):
        draws = (low + high) / 2
        low, high = (draws, high) if -np.expm1(-draws * weights).sum() < used else (low, draws)
    shares: NDArray[np.float64] = np.clip(-np.expm1(-high * weights), 1e-6, 1 - 1e-6)
    return shares


def _normal(rng: np.random.Generator, count: int, deviation: float) -> NDArray[np.float32]:
    values = rng.standard_normal(count, dtype=np.float32)
    values *= np.float32(deviation)
    return values


def _floats(rng: np.random.Generator, s: Spec, t: Tensor) -> NDArray[np.float32] | None:
    """Values of the small tensors that are kept as floats, in a trained model's range; None for the matrices."""
    leaf = t.name.removesuffix(".weight").rsplit(".", 1)[-1] if t.name.endswith(".weight") else t.name.split(".")[2]
    if leaf == "ffn_gate_inp":
        return router(rng, s, int(t.name.split(".")[1]))
    count = math.prod(t.ne)
    if leaf == "ssm_a":
        values: NDArray[np.float32] = -np.exp(rng.uniform(-2.5, 1.2, count)).astype(np.float32)
        return values
    if leaf == "ssm_dt":
        return rng.uniform(-4, 0.5, count).astype(np.float32)
    if leaf in ("ssm_conv1d", "ple_conv1d"):
        return _normal(rng, count, 0.5)
    if leaf == "ffn_gate_inp_shexp":
        return _normal(rng, count, 1.5 / math.sqrt(t.ne[0]))
    if "norm" in leaf:
        values = _normal(rng, count, NORM_SPREAD if s.skew and leaf == "hc_ffn_norm" else 0.15)
        values += np.float32(1)
        return values
    return None


# Standard deviation of a matrix's values times the root of its row's length: what a row makes of inputs of size 1.
_GAINS = [
    (r"hc\w*_down\.", 6.0),
    (r"hc\w*_up\.", 3.0),
    (r"_inject\.", 4.0),
    (r"^(output|token_embd)\.", 3.0),
    (r"attn_output\.|ssm_out\.|_down_(sh)?exps?\.", 0.7),
]


def _scale(t: Tensor, s: Spec) -> tuple[float, float]:
    """Standard deviation and mean of a matrix's values."""
    if s.skew and t.name == "token_embd.weight":
        return EMBEDDING, MEAN * EMBEDDING
    if t.name == TABLE or (t.name == "token_embd.weight" and not s.shape.tied):
        return 1.0, 0.0
    gain = next((g for pattern, g in _GAINS if re.search(pattern, t.name)), 1.5)
    if s.skew and "hc_ffn_up." in t.name:
        gain = GATE_GAIN
    return gain / math.sqrt(t.ne[0]), 0.0


class _Weights:
    """The bytes of each tensor."""

    def __init__(self, s: Spec) -> None:
        self._spec = s
        self._pools: dict[tuple[str, float, float], Bytes] = {}

    def pieces(self, t: Tensor) -> Iterator[Bytes]:
        rng = _generator(self._spec.seed, t.name)
        floats = _floats(rng, self._spec, t)
        if floats is not None:
            yield _core.quantize(t.type, floats.reshape(-1, t.ne[0])).reshape(-1)
            return
        pool = self._pool(t.type, *_scale(t, self._spec))
        block = gguf_write.types()[t.type][2]
        experts = t.ne[2] if len(t.ne) == 3 else 1
        each = t.bytes // experts
        # Places without repetition, so that no expert is another one's copy.
        starts = rng.permutation(len(pool) // block)
        for e in range(experts):
            at, left = int(starts[e % len(starts)]) * block, each
            while left:
                piece = pool[at : at + left]
                yield piece
                left -= len(piece)
                at = int(rng.integers(len(starts))) * block  # the pool's end: on from anywhere

    def _pool(self, type: str, deviation: float, mean: float) -> Bytes:
        key = type, deviation, mean
        if key not in self._pools:
            rng = _generator(self._spec.seed, f"{type} {deviation:.9e}")
            values = _normal(rng, DRAWN, deviation)
            values += np.float32(mean)
            _, per_block, size = gguf_write.types()[type]
            together = size * max(1, GROUP // per_block)
            blocks = _core.quantize(type, values).reshape(-1, together)
            self._pools[key] = blocks[rng.integers(len(blocks), size=POOL // together)].reshape(-1)
        return self._pools[key]


def _generator(seed: int, name: str) -> np.random.Generator:
    """Depends on the seed and the tensor only, whatever else is in the file."""
    return np.random.default_rng([seed, *name.encode()])


def make(path: str | os.PathLike[str], s: Spec, progress: Callable[[int, int], object] | None = None) -> int:
    """Writes the file and returns its size; see gguf_write.write."""
    return gguf_write.write(Path(path), metadata(s), tensors(s), _Weights(s).pieces, progress)


def describe(s: Spec) -> dict[str, Any]:
    """The spec in plain values, for JSON."""
    fields = {f.name: getattr(s, f.name) for f in dataclasses.fields(s) if f.name != "shape"}
    return fields | {"types": [dict(t) for t in s.types]}
