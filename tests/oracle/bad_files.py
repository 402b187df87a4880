"""Malformed and wrong GGUF files for tests of a loader, made from tiny-ties.gguf.

    python bad_files.py FOLDER        # writes them with an index.json {file: {"why":, "level":}}
    python bad_files.py               # checks that this folder's own reader and layout check refuse each one
As a module: for name, data, why, level in cases(): ...    # level "container" or "model"
Every file must be refused with an error that names the fault; none may crash, hang, or make the loader reserve memory
in proportion to a number that the file merely claims. The list follows docs/file-format.md, sections 1 to 3 and 8.
"""

import copy
import json
import os
import struct
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "oracle")
sys.path.insert(0, HERE)
import gguf_io  # noqa: E402

BASE = os.path.join(DATA, "tiny-ties.gguf")
A = "qwen4exp."


def _s(b):
    b = b.encode() if isinstance(b, str) else b
    return struct.pack("<Q", len(b)) + b


def _kv(key, kind, value):
    out = _s(key)
    if kind.startswith("arr:"):
        sub = kind[4:]
        out += struct.pack("<IIQ", 9, gguf_io.KINDS[sub][0], len(value))
        return out + b"".join(gguf_io._pack_value(sub, v) for v in value)
    return out + struct.pack("<I", gguf_io.KINDS[kind][0]) + gguf_io._pack_value(kind, value)


class Image:
    """A file as editable parts."""

    def __init__(self, path=BASE):
        g = gguf_io.GGUF(path)
        self.version, self.magic, self.align = 3, b"GGUF", 32
        self.kv = [[k, g.kinds[k], v] for k, v in g.kv.items()]
        self.raw_kv = []  # extra encoded entries
        self.t = [[t.name, list(t.ne), gguf_io.TYPES[t.type][0], None, bytes(t.raw)] for t in g.tensors.values()]
        self.n_kv = self.n_t = None
        self.cut = None

    def set(self, key, value, kind=None):
        key = key if key.startswith(("general.", "tokenizer.")) else A + key
        for e in self.kv:
            if e[0] == key:
                e[2], e[1] = value, kind or e[1]
                return
        self.kv.append([key, kind, value])

    def drop(self, key):
        key = key if key.startswith(("general.", "tokenizer.")) else A + key
        self.kv = [e for e in self.kv if e[0] != key]

    def tensor(self, name):
        return next(t for t in self.t if t[0] == name)

    def bytes(self):
        head = b"".join(_kv(*e) for e in self.kv) + b"".join(self.raw_kv)
        off = 0
        for name, ne, tid, o, data in self.t:
            head += _s(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, tid & 0xFFFFFFFF, off if o is None else o)
            off += -(-len(data) // 32) * 32
        n_kv = len(self.kv) + len(self.raw_kv) if self.n_kv is None else self.n_kv
        out = self.magic + struct.pack("<IQQ", self.version, len(self.t) if self.n_t is None else self.n_t, n_kv) + head
        out += b"\0" * (-len(out) % 32)
        for *_, data in self.t:
            out += data + b"\0" * (-len(data) % 32)
        return out[: self.cut] if self.cut is not None else out


def cases():
    base = Image()
    whole = base.bytes()
    head_end = whole.index(b"token_embd.weight")

    def c(why, edit, level="container"):
        im = copy.deepcopy(base)
        edit(im)
        return why, im.bytes(), level

    def attr(**kw):
        return lambda im: [setattr(im, k, v) for k, v in kw.items()]

    def raw(b):
        return lambda im: im.raw_kv.append(b)

    def tens(i, field, value):
        return lambda im: im.t[i].__setitem__(field, value)

    big = (1 << 61) + 1
    yield_list = [
        ("empty file", b"", "container"),
        ("only the magic", b"GGUF", "container"),
        ("23 bytes", whole[:23], "container"),
        c("wrong magic", attr(magic=b"GGML")),
        c("version 1", attr(version=1)),
        c("version 4", attr(version=4)),
        c("byte-swapped version", attr(version=3 << 24)),
        c("version 0", attr(version=0)),
        c("cut inside the metadata", attr(cut=200)),
        c("cut inside the tensor list", attr(cut=head_end + 5)),
        c("last data byte missing", attr(cut=len(whole.rstrip(b"\0")) - 1)),
        c("data section missing", attr(cut=head_end + 9000)),
        c("kv count 2^60", attr(n_kv=1 << 60)),
        c("kv count one too many", attr(n_kv=len(base.kv) + 1)),
        c("tensor count 2^60", attr(n_t=1 << 60)),
        c("tensor count 2^64-1", attr(n_t=(1 << 64) - 1)),
        c("key length 2^63", raw(struct.pack("<Q", 1 << 63) + b"x")),
        c("key length beyond the file", raw(struct.pack("<Q", len(whole) * 2) + b"x")),
        c("string value length 2^64-1", raw(_s("x.y") + struct.pack("<IQ", 8, (1 << 64) - 1))),
        c("array count that overflows with the element size", raw(_s("x.y") + struct.pack("<IIQ", 9, 10, big))),
        c("array of strings with a huge count", raw(_s("x.y") + struct.pack("<IIQ", 9, 8, 1 << 59))),
        c("array count beyond the file", raw(_s("x.y") + struct.pack("<IIQ", 9, 0, len(whole) * 4))),
        c("value kind 13", raw(_s("x.y") + struct.pack("<II", 13, 0))),
        c("value kind 2^32-1", raw(_s("x.y") + struct.pack("<II", 0xFFFFFFFF, 0))),
        c("array of arrays", raw(_s("x.y") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 4, 0))),
        c("array of kind 77", raw(_s("x.y") + struct.pack("<IIQ", 9, 77, 1) + b"\0" * 8)),
        c("bool byte 2", raw(_s("x.y") + struct.pack("<IB", 7, 2))),
        c("empty key", raw(_kv("", "u32", 1))),
        c("duplicate key", raw(_kv(A + "block_count", "u32", 2))),
        c("alignment 0", lambda im: im.set("general.alignment", 0, "u32")),
        c("alignment 3", lambda im: im.set("general.alignment", 3, "u32")),
        c("alignment as string", lambda im: im.set("general.alignment", "32", "str")),
        c("alignment 64 with offsets of 32", lambda im: im.set("general.alignment", 64, "u32")),
        c("no dimensions", tens(3, 1, [])),
        c("five dimensions", tens(3, 1, [64, 1, 1, 1, 1])),
        c("dimension 0", tens(3, 1, [0, 4])),
        c("dimensions whose product overflows", tens(0, 1, [1 << 32, 1 << 32])),
        c("dimensions whose product wraps to a small number", tens(0, 1, [1 << 33, 1 << 31, 1 << 2])),
        c("dimension with the sign bit", tens(0, 1, [1 << 63, 1])),
        c("type 4 (retired)", tens(0, 2, 4)),
        c("type 43", tens(0, 2, 43)),
        c("type 2^32-1", tens(0, 2, 0xFFFFFFFF)),
        c("row not whole blocks", tens(2, 2, 12) if base.t[2][1][0] % 256 else tens(0, 2, 12)),
        c("offset not aligned", tens(5, 3, 33)),
        c("offset beyond the file", tens(5, 3, 1 << 40)),
        c("offset 2^64-32", tens(5, 3, (1 << 64) - 32)),
        c("two tensors at one offset", tens(5, 3, 0)),
        c("duplicate tensor name", tens(5, 0, base.t[4][0])),
        c("empty tensor name", tens(5, 0, "")),
        c("tensor name of 64 bytes", tens(5, 0, "n" * 64)),
        c("tensor name not UTF-8", tens(5, 0, b"\xff\xfe")),
    ]

    def m(why, edit):
        return c(why, edit, "model")

    yield_list += [
        m(f"{k} missing", lambda im, k=k: im.drop(k))
        for k in (
            "general.architecture",
            "block_count",
            "embedding_length",
            "attention.head_count",
            "attention.layer_norm_rms_epsilon",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
            "ssm.conv_kernel",
            "ssm.state_size",
            "ssm.group_count",
            "ssm.time_step_rank",
            "ssm.inner_size",
            "hyper_connection.count",
            "hyper_connection.low_rank",
            "attention.indexer.head_count",
            "attention.indexer.key_length",
            "attention.indexer.top_k",
            "ple.ngram_size",
            "ple.heads_per_ngram",
            "ple.conv_kernel",
            "ple.eos_token_id",
            "ple.layer_multipliers",
            "ple.head_offsets",
            "ple.head_vocab_sizes",
            "embedding_length_per_layer_input",
        )
    ]
    S = lambda k, v, kind=None: lambda im: im.set(k, v, kind)  # noqa: E731
    yield_list += [
        m("another architecture", S("general.architecture", "llama")),
        m("block_count as string", S("block_count", "2", "str")),
        m("block_count 0", S("block_count", 0)),
        m("block_count 2^31", S("block_count", 1 << 31)),
        m("more blocks than tensors", S("block_count", 3)),
        m("embedding_length 0", S("embedding_length", 0)),
        m("embedding_length that no tensor has", S("embedding_length", 128)),
        m("head_count 0", S("attention.head_count", 0)),
        m("head_count_kv does not divide", S("attention.head_count_kv", 3)),
        m("head_count_kv 0", S("attention.head_count_kv", 0)),
        m("key and value lengths differ", S("attention.value_length", 16)),
        m("eps 0", S("attention.layer_norm_rms_epsilon", 0.0)),
        m("eps negative", S("attention.layer_norm_rms_epsilon", -1e-6)),
        m("eps NaN", S("attention.layer_norm_rms_epsilon", float("nan"))),
        m("frequency base infinite", S("rope.freq_base", float("inf"))),
        m("frequency base 0", S("rope.freq_base", 0.0)),
        m("rotated values odd", S("rope.dimension_count", 7)),
        m("more rotated values than the head has", S("rope.dimension_count", 64)),
        m("more rotated values than the indexer head has", S("rope.dimension_count", 32)),
        m("more experts used than there are", S("expert_used_count", 9)),
        m("no expert used", S("expert_used_count", 0)),
        m("expert_count beyond the tensors", S("expert_count", 16)),
        m("expert_count 0", S("expert_count", 0)),
        m("state_size 0", S("ssm.state_size", 0)),
        m("inner_size is not heads x size", S("ssm.inner_size", 97)),
        m("value heads no multiple of key heads", S("ssm.time_step_rank", 5)),
        m("key heads 0", S("ssm.group_count", 0)),
        m("one residual stream", S("hyper_connection.count", 1)),
        m("low rank 0", S("hyper_connection.low_rank", 0)),
        m("indexer budget no multiple of the ratio", S("attention.indexer.top_k", 33)),
        m("indexer budget 0", S("attention.indexer.top_k", 0)),
        m("negative ratio", S("attention.compress_ratios", [0, -4])),
        m("too few ratios", S("attention.compress_ratios", [4])),
        m("too few layer kinds", S("attention.recurrent_layers", [True])),
        m("layer kinds swapped", S("attention.recurrent_layers", [False, True])),
        m("two n-gram layers", S("ple.layers", [0, 1])),
        m("n-gram layer out of range", S("ple.layers", [2])),
        m("negative n-gram layer", S("ple.layers", [-1])),
        m("n-gram layer on an attention layer", S("ple.layers", [1])),
        m("n-gram size 1", S("ple.ngram_size", 1)),
        m("n-gram size 9", S("ple.ngram_size", 9)),
        m("no n-gram heads", S("ple.heads_per_ngram", 0)),
        m("65 n-gram heads and more", S("ple.heads_per_ngram", 40)),
        m("too few multipliers", S("ple.layer_multipliers", [3, 5])),
        m("too few offsets", S("ple.head_offsets", [0])),
        m("a head without rows", S("ple.head_vocab_sizes", [0] * 8)),
        m("head ranges beyond the table", S("ple.head_offsets", [0, 127, 258, 395, 534, 683, 834, 1 << 20])),
        m("head offset that overflows", S("ple.head_offsets", [(1 << 64) - 1] * 8)),
        m("reset token beyond the vocabulary", S("ple.eos_token_id", 512)),
        m("row width times heads is not H", S("embedding_length_per_layer_input", 16)),
        m("convolution without taps", S("ple.conv_kernel", 0)),
        m("softmax is not the gating function", S("expert_gating_func", 2, "u32")),
        m("rope scaling", S("rope.scaling.type", "yarn", "str")),
        m("draft-head blocks equal all blocks", S("nextn_predict_layers", 2, "u32")),
        m(
            "token list shorter than the vocabulary",
            lambda im: im.set(
                "tokenizer.ggml.tokens", next(e[2] for e in im.kv if e[0] == "tokenizer.ggml.tokens")[:-1]
            ),
        ),
        m("token kinds shorter than the tokens", lambda im: im.set("tokenizer.ggml.token_type", [1] * 511)),
        m("tokenizer end token beyond the vocabulary", S("tokenizer.ggml.eos_token_id", 600)),
    ]
    yield_list += [
        m(f"tensor {n} missing", lambda im, n=n: im.t.remove(im.tensor(n)))
        for n in (
            "token_embd.weight",
            "output_hc_norm.weight",
            "per_layer_token_embd.weight",
            "blk.0.ssm_a",
            "blk.0.ple_conv1d.weight",
            "blk.1.attn_q.weight",
            "blk.1.indexer.k_norm.weight",
            "blk.0.ffn_down_exps.weight",
            "blk.1.hc_ffn_inject.weight",
        )
    ]

    def reshape(n, ne):
        return lambda im: im.tensor(n).__setitem__(1, ne)

    t = {x[0]: x[1] for x in base.t}
    yield_list += [
        m("attn_q transposed", reshape("blk.1.attn_q.weight", t["blk.1.attn_q.weight"][::-1])),
        m("experts in the wrong dimension", reshape("blk.0.ffn_gate_exps.weight", [64, 8, 32])),
        m("norm as a matrix", reshape("blk.0.hc_attn_norm.weight", [64, 4])),
        m("ssm_a of I32", lambda im: im.tensor("blk.0.ssm_a").__setitem__(2, 26)),
    ]
    for i, (why, data, level) in enumerate(yield_list):
        slug = "".join(ch if ch.isalnum() else "-" for ch in why.lower())[:48].strip("-")
        yield f"{i:03d}-{slug}.gguf", data, why, level


def main():
    if len(sys.argv) > 1:
        os.makedirs(sys.argv[1], exist_ok=True)
        index = {}
        for name, data, why, level in cases():
            with open(os.path.join(sys.argv[1], name), "wb") as f:
                f.write(data)
            index[name] = {"why": why, "level": level}
        with open(os.path.join(sys.argv[1], "index.json"), "w") as f:
            json.dump(index, f, indent=1)
        print(len(index), "files")
        return
    import layout

    bad = n = 0
    with tempfile.TemporaryDirectory() as tmp:
        p = os.path.join(tmp, "x.gguf")
        for name, data, why, level in cases():
            with open(p, "wb") as f:
                f.write(data)
            n += 1
            try:
                g = gguf_io.GGUF(p)
                got = "model"
                layout.check(g)
                got = None
            except (gguf_io.GGUFError, layout.LayoutError) as e:
                got = "container" if isinstance(e, gguf_io.GGUFError) else "model"
                msg = str(e)
            if got != level:
                bad += 1
                print("NOT AS EXPECTED", name, why, got, None if got is None else msg)
    print(f"{n} files, {bad} not refused as expected")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
