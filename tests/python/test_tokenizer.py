"""Text <-> ids, against cases made with the reference tokenizer on the same vocabulary."""

import json
import threading
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strata import InputError, ModelFormatError, StreamDecoder, Tokenizer, demo_path

DATA = Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "oracle" / "tokenizer_cases.json").read_text())
DEMO = json.loads((DATA / "demo" / "prompts.json").read_text())["prompts"]


class Metadata(dict):
    """Metadata in memory, with .value as a GGUF file has it."""

    def value(self, key):
        return self[key]


@pytest.fixture
def tokenizer(gguf_file, tiny):
    return Tokenizer.from_gguf(gguf_file(str(tiny)))


@pytest.fixture
def metadata(gguf_file, tiny):
    file = gguf_file(str(tiny))
    return Metadata({key: file.value(key) for key in file.keys() if key.startswith("tokenizer.")})  # noqa: SIM118


def test_there_are_cases():
    assert len(CASES) == 59


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"])[:30])
def test_case(tokenizer, case):
    assert tokenizer.encode(case["text"]) == case["ids"]
    assert tokenizer.decode(case["ids"], skip_special=False) == case["decoded"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"])[:30])
def test_stream_is_the_same_text(tokenizer, case):
    decoder = StreamDecoder(tokenizer, skip_special=False)
    pieces = [decoder.push(i) for i in case["ids"]]
    assert "".join(pieces) + decoder.finish() == case["decoded"]


def test_demo_prompts(gguf_file):
    tokenizer = Tokenizer.from_gguf(gguf_file(str(demo_path())))
    assert tokenizer.eos_ids == {3071} and tokenizer.n_vocab == 3072
    for prompt in DEMO:
        assert tokenizer.encode(prompt["prompt"]) == prompt["prompt_ids"]
        assert tokenizer.decode(prompt["ids"]) == prompt["text"]


def test_unfinished_character_waits(tokenizer):
    rocket = tokenizer.encode("🚀")
    decoder = StreamDecoder(tokenizer)
    assert [decoder.push(i) for i in rocket] == ["", "", "", "🚀"] and decoder.finish() == ""
    assert [decoder.push(i) for i in rocket[:2]] == ["", ""] and decoder.finish() == "\ufffd"
    decoder.push(rocket[0])
    assert decoder.push(64) == "\ufffda"


def test_special_tokens(tokenizer):
    assert tokenizer.eos_ids == {496, 498}
    assert tokenizer.encode("a<|im_end|>") == [64, 498]
    plain = tokenizer.encode("a<|im_end|>", parse_special=False)
    assert 498 not in plain and tokenizer.decode(plain) == "a<|im_end|>"
    assert tokenizer.encode("<think>", parse_special=False) == [506]  # user-defined: part of the text
    assert tokenizer.encode("a<|im_end|>") == [64, 498]
    assert tokenizer.decode([64, 498, 506, 510, 64]) == "a<think>a"
    assert tokenizer.decode([64, 498, 64], skip_special=False) == "a<|im_end|>a"


def test_longest_added_token_first(metadata):
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[504], tokens[505] = "<ab>", "<ab><c>"
    metadata["tokenizer.ggml.tokens"] = tokens
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer.encode("<ab><c><ab>") == [505, 504]


def test_qwen2_splits_before_marks(metadata):
    text = "क्क"
    qwen35 = Tokenizer.from_gguf(metadata)
    metadata["tokenizer.ggml.pre"] = "qwen2"
    qwen2 = Tokenizer.from_gguf(metadata)
    assert qwen2.decode(qwen2.encode(text)) == text == qwen35.decode(qwen35.encode(text))
    pieces = [[p for p, _ in t._encoder.pre_tokenizer.pre_tokenize_str(text)] for t in (qwen2, qwen35)]
    assert len(pieces[0]) > 1 and len(pieces[1]) == 1


@pytest.mark.parametrize("text", [None, b"a", 3, ["a"], "a\ud800b"])
def test_text_that_is_none(tokenizer, text):
    with pytest.raises(InputError):
        tokenizer.encode(text)


@pytest.mark.parametrize("id", [-1, 512, 10**20, "a", None])
def test_bad_id(tokenizer, id):
    with pytest.raises(InputError):
        tokenizer.decode([id])


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("model", "llama", "llama"),
        ("model", None, "missing"),
        ("pre", "gpt-4o", "gpt-4o"),
        ("pre", None, "missing"),
        ("tokens", None, "missing"),
        ("tokens", [], "empty"),
        ("tokens", "abc", "not an array"),
        ("tokens", ["a", b"b"], "UTF-8"),
        ("tokens", ["a", "\udcff"], "UTF-8"),
        ("merges", None, "missing"),
        ("merges", ["ab"], "merge 0"),
        ("merges", ["a b", "a b c"], "merge"),
        ("merges", ["zzzz q"], "not in the vocabulary"),
        ("token_type", [1], "token_type has 1"),
        ("token_type", ["x"] * 512, "whole number"),
        ("eos_token_id", 512, "512"),
        ("eos_token_id", "a", "whole number"),
    ],
)
def test_metadata_that_makes_no_tokenizer(metadata, key, value, says):
    metadata[f"tokenizer.ggml.{key}"] = value
    if value is None:
        del metadata[f"tokenizer.ggml.{key}"]
    with pytest.raises(ModelFormatError, match=says):
        Tokenizer.from_gguf(metadata)


def test_duplicate_tokens(metadata):
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[7] = tokens[5]
    metadata["tokenizer.ggml.tokens"] = tokens
    with pytest.raises(ModelFormatError, match="tokens 5 and 7"):
        Tokenizer.from_gguf(metadata)


def test_threads(tokenizer):
    wrong = []

    def work(special):
        for _ in range(200):
            if (498 in tokenizer.encode("a<|im_end|>", parse_special=special)) != special:
                wrong.append(special)

    threads = [threading.Thread(target=work, args=(special,)) for special in (True, False) * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# Up to U+2FFF and assigned: there the Unicode tables of Python and of the encoder do not differ.
assigned = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs", "Cn")), max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(text=assigned)
def test_round_trip_is_nfc(tokenizer, text):
    ids = tokenizer.encode(text, parse_special=False)
    assert tokenizer.decode(ids, skip_special=False) == unicodedata.normalize("NFC", text)
