"""Text <-> token ids: byte-level BPE from the vocabulary and merges that the GGUF file carries.

Encoding: control and user-defined tokens are cut out where their exact text stands (longest first at a position), the
rest is put in Unicode NFC, split by the pattern of the file's pre-tokenizer, and merged inside each piece.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as _Encoder

from strata.errors import InputError, ModelFormatError

# tokenizer.ggml.pre -> pattern of a piece. qwen35 takes combining marks (\p{M}) with the letters, qwen2 does not.
PATTERNS = {
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}

# tokenizer.ggml.token_type
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of the byte-level spelling: printable Latin-1 bytes stand for themselves, the other 68 are
    U+0100, U+0101, ... in rising order."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + i): b for i, b in enumerate(others)}


class Metadata(Protocol):
    """What the tokenizer needs of a GGUF file."""

    def value(self, key: str) -> Any: ...


class Tokenizer:
    """Tokenizer of one model file. Safe to use from several threads.

    Attributes: n_vocab; eos_ids (frozenset of the ids that end a text); pre (name of the pre-tokenizer).
    """

    def __init__(
        self,
        tokens: Sequence[str],
        token_types: Sequence[int],
        merges: Sequence[str],
        *,
        pre: str,
        eos_ids: Iterable[int] = (),
    ) -> None:
        """tokens: spelling of each id; token_types: the file's kinds, same length; merges: "left right" by rank.

        Raises ModelFormatError when they do not make a tokenizer.
        """
        if pre not in PATTERNS:
            known = ", ".join(sorted(PATTERNS))
            raise ModelFormatError(f"the pre-tokenizer '{pre}' is not supported; strata knows {known}.")
        if not tokens:
            raise ModelFormatError("the vocabulary is empty.")
        if len(token_types) != len(tokens):
            raise ModelFormatError(
                f"tokenizer.ggml.token_type has {len(token_types)} entries, tokenizer.ggml.tokens {len(tokens)}."
            )
        self.n_vocab = len(tokens)
        self.pre = pre
        self.eos_ids = frozenset(eos_ids)
        for i in self.eos_ids:
            if not 0 <= i < self.n_vocab:
                raise ModelFormatError(f"the end token {i} is outside the vocabulary of {self.n_vocab} tokens.")
        self._tokens = tokens
        self._types = token_types
        self._alphabet = _byte_alphabet()
        self._encoder = _make_encoder(tokens, token_types, merges, PATTERNS[pre])
        # Whether control tokens are cut out is a switch of the encoder, not an argument of its encode().
        self._lock = threading.Lock()

    @classmethod
    def from_gguf(cls, file: Metadata) -> Tokenizer:
        """The tokenizer of an open GGUF file. Raises ModelFormatError when it is of a kind strata does not know."""
        model = _value(file, "tokenizer.ggml.model")
        if model != "gpt2":
            named = "is missing" if model is None else f"is '{model}'"
            raise ModelFormatError(f"tokenizer.ggml.model {named}; strata knows gpt2 (byte-level BPE) only.")
        pre = _value(file, "tokenizer.ggml.pre")
        if pre is None:
            raise ModelFormatError("tokenizer.ggml.pre is missing, so how to split text is unknown.")
        tokens = _strings(file, "tokenizer.ggml.tokens")
        merges = _strings(file, "tokenizer.ggml.merges")
        types = _value(file, "tokenizer.ggml.token_type")
        kinds = [NORMAL] * len(tokens) if types is None else np.asarray(types).tolist()
        if not all(isinstance(kind, int) for kind in kinds):
            raise ModelFormatError("tokenizer.ggml.token_type has an entry that is not a whole number.")
        eos = set()
        for name in ("eos", "eot", "eom"):
            i = _value(file, f"tokenizer.ggml.{name}_token_id")
            if i is not None and not isinstance(i, Integral):
                raise ModelFormatError(f"tokenizer.ggml.{name}_token_id is {i!r}, not a whole number.")
            if i is not None:
                eos.add(int(i))
        # The end of a document ends a text too, but files of this family name the end of a chat turn only.
        eos.update(i for i, text in enumerate(tokens) if text == "<|endoftext|>" and kinds[i : i + 1] == [CONTROL])
        return cls(tokens, kinds, merges, pre=str(pre), eos_ids=eos)

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids of a text. No beginning-of-text token is added: this family has none.

        parse_special: False takes the text of a control token as plain text, for input that is not trusted.
        Raises InputError when text is not a string, or holds a lone surrogate.
        """
        if not isinstance(text, str):
            raise InputError(f"a text is a str, not {type(text).__name__}; decode bytes first.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as e:
            raise InputError(f"the text has a lone surrogate at character {e.start}; it has no UTF-8 form.") from None
        with self._lock:
            self._encoder.encode_special_tokens = not parse_special
            ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token, possibly a part of a character. Raises InputError for an id not in the vocabulary."""
        try:
            known = 0 <= id < self.n_vocab
        except TypeError:
            raise InputError(f"a token id is an int, not {type(id).__name__}.") from None
        if not known:
            raise InputError(f"token id {id} is outside the vocabulary of {self.n_vocab} tokens.")
        spelling = self._tokens[id]
        if self._types[id] not in (CONTROL, USER_DEFINED, UNUSED):
            try:
                return bytes([self._alphabet[c] for c in spelling])
            except KeyError:  # not the byte-level spelling: an added token that the file calls normal
                pass
        return spelling.encode("utf-8")

    def is_control(self, id: int) -> bool:
        """Whether the token steers the model and prints nothing (control tokens and ids without a text)."""
        return self._types[id] in (CONTROL, UNUSED)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of token ids; bytes that are not UTF-8 become U+FFFD. skip_special: control tokens print nothing."""
        decoder = StreamDecoder(self, skip_special=skip_special)
        return "".join([decoder.push(i) for i in ids]) + decoder.finish()


class StreamDecoder:
    """Decodes one token at a time; the bytes of an unfinished character wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        """The text that is complete with this token, often one word, sometimes nothing."""
        data = self._tokenizer.token_bytes(id)
        if self._skip and self._tokenizer.is_control(id):
            return ""
        return self._utf8.decode(data)

    def finish(self) -> str:
        """What is left at the end: U+FFFD when a character stayed unfinished, else nothing."""
        return self._utf8.decode(b"", final=True)


def _value(file: Metadata, key: str) -> Any:
    try:
        return file.value(key)
    except KeyError:
        return None


def _strings(file: Metadata, key: str) -> list[str]:
    items = _value(file, key)
    if items is None:
        raise ModelFormatError(f"{key} is missing.")
    if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
        raise ModelFormatError(f"{key} is not an array of texts.")
    strings = list(items)
    try:
        "".join(strings).encode("utf-8")
    except (TypeError, UnicodeEncodeError):
        raise ModelFormatError(f"{key} has an entry that is not UTF-8 text.") from None
    return strings


def _make_encoder(tokens: Sequence[str], types: Sequence[int], merges: Sequence[str], pattern: str) -> _Encoder:
    vocab = {text: i for i, text in enumerate(tokens)}
    if len(vocab) != len(tokens):
        i = next(i for i, text in enumerate(tokens) if vocab[text] != i)
        raise ModelFormatError(f"tokens {i} and {vocab[tokens[i]]} have the same text {tokens[i]!r}.")
    pairs = []
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise ModelFormatError(f"merge {rank} is {merge!r}, not two parts with one space between.")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ModelFormatError(f"merge {rank} ({merge!r}) has a part or a result that is not in the vocabulary.")
        pairs.append((left, right))
    encoder = _Encoder(models.BPE(vocab, pairs))
    encoder.normalizer = normalizers.NFC()
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    # normalized=False: their text is looked for before NFC. The encoder takes the longest at a position.
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            AddedToken(text, special=special, normalized=False)
            for text, t in zip(tokens, types, strict=True)
            if t == kind and text
        ]
        (encoder.add_special_tokens if special else encoder.add_tokens)(added)
    return encoder
