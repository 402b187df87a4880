"""Writes the seeds of fuzz_gguf into a folder: headers of the small models with a short vocabulary, and the bad files.

python tests/fuzz/make_corpus.py FOLDER
"""

import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))
import bad_files


def header(image: bad_files.Image) -> bytes:
    """Without tensor data: the target puts a hole of 1 MB behind its input."""
    whole = image.bytes()
    data = sum(-(-len(t[4]) // 32) * 32 for t in image.t)
    return whole[: len(whole) - data]


def short(image: bad_files.Image, vocab: int = 8) -> bad_files.Image:
    """Mutations of 512 token texts find nothing, so the vocabulary is cut."""
    image = copy.deepcopy(image)
    for entry in image.kv:
        if entry[0] in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
            entry[2] = entry[2][:vocab]
        elif entry[0].endswith("_token_id"):
            entry[2] = vocab - 1
    for name in ("token_embd.weight", "output.weight"):
        t = image.tensor(name)
        t[4] = t[4][: len(t[4]) // t[1][1] * vocab]
        t[1] = [t[1][0], vocab]
    return image


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    base = short(bad_files.Image())
    (folder / "good.gguf").write_bytes(header(base))
    split = copy.deepcopy(base)
    split.kv += [["split.no", "u16", 0], ["split.count", "u16", 1], ["split.tensors.count", "i32", len(base.t)]]
    (folder / "split.gguf").write_bytes(header(split))
    plain = copy.deepcopy(base)
    plain.kv = [e for e in plain.kv if not e[0].startswith("tokenizer.")]
    (folder / "no-tokenizer.gguf").write_bytes(header(plain))
    for name, data, _, _ in bad_files.cases():
        if len(data) < 1000:
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
