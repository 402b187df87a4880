"""Trains the byte-level BPE tokenizer (Qwen-style pre-tokenizer, digits one by one).  Run: python tok.py text.txt tokenizer.json [3072]"""

import sys
from tokenizers import Tokenizer, Regex, decoders, models, pre_tokenizers, processors, trainers

PAT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EOS = "<|endoftext|>"


def main(text, out, size=3072):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PAT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    docs = [d.strip("\n") for d in open(text).read().split(EOS)]
    t.train_from_iterator(
        docs,
        trainers.BpeTrainer(
            vocab_size=int(size) - 1,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
            special_tokens=[],
        ),
    )
    t.add_special_tokens([EOS])
    t.save(out)
    n = [len(t.encode(d).ids) for d in docs[:2000]]
    print(
        "vocabulary",
        t.get_vocab_size(),
        "eos",
        t.token_to_id(EOS),
        "characters per token",
        sum(map(len, docs[:2000])) / sum(n),
        "tokens per document",
        sum(n) / len(n),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
