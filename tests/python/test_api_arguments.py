"""The public calls: what they return, and that arguments which cannot be served end in typed errors before any work."""

import gc
import os
import shutil
import signal
import weakref

import numpy as np
import pytest
import strata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strata import Config, ConfigError, InputError, ModelFormatError, StrataError
from strata.progress import from_core
from strata.sampling import Sampler, probabilities, top


@pytest.fixture
def model(tiny):
    with strata.load(tiny, context=64) as loaded:
        yield loaded


class TestPrefill:
    def test_path(self, tiny):
        result = strata.prefill(tiny, "Hello", threads=1)
        assert result.tokens.dtype == np.int32 and result.tokens.tolist() == [39, 292, 75, 78]
        assert result.logits.dtype == np.float32 and result.logits.shape == (512,)
        assert result.stats["tokens"] == 4 and result.session.position == 4
        assert result.config.threads == 1 and result.config.sources["threads"] == "argument"
        assert result.effective["threads"] == 1
        result.session.close()
        assert result.session.model.closed

    def test_the_session_keeps_the_model(self, tiny):
        result = strata.prefill(str(tiny), [1, 2])
        model = weakref.ref(result.session.model)
        more = strata.prefill(result.session, [3])
        assert more.session.position == 3 and not model().closed
        del result, more
        gc.collect()
        assert model() is None

    def test_continuing_is_the_same_as_one_call(self, model):
        whole = model.prefill([5, 6, 7, 8], logits="all")
        assert whole.logits.shape == (4, 512)
        session = model.session()
        first = strata.prefill(session, [5, 6])
        second = session.prefill(np.array([7, 8], np.uint8))
        assert np.array_equal(first.logits, whole.logits[1]) and np.array_equal(second.logits, whole.logits[3])
        assert session.position == 4

    @pytest.mark.parametrize("kind", [None, "none"])
    def test_no_logits(self, model, kind):
        assert model.prefill([1], logits=kind).logits is None

    @pytest.mark.parametrize("prompt", [(1, 2), range(1, 3), np.array([1, 9, 2])[::2], np.array([1, 2], np.uint64)])
    def test_forms_of_ids(self, model, prompt):
        assert model.prefill(prompt).tokens.tolist() == [1, 2]

    def test_control_tokens_as_text(self, model):
        assert model.prefill("<|im_end|>").tokens.tolist() == [498]
        assert 498 not in model.prefill("<|im_end|>", parse_special=False).tokens

    @pytest.mark.parametrize("sizes", [{}, {"prompt_chunk": 2}, {"prompt_chunk": 2, "prompt_sweep": 2}])
    def test_progress(self, tiny, sizes):
        seen = []
        with strata.load(tiny, context=64, **sizes) as model:
            result = model.prefill([1, 2, 3, 4, 5], progress=seen.append)
        assert all(isinstance(p, strata.Progress) for p in seen)
        for values in ([p.fraction for p in seen], [p.tokens_done for p in seen], [p.bytes_read for p in seen]):
            assert values == sorted(values)
        assert seen[0].fraction > 0 and seen[-1].fraction == 1.0
        assert (seen[-1].layer, seen[-1].n_layer, seen[-1].tokens) == (5, 5, 5)
        assert seen[-1].seconds_left == 0 and seen[0].seconds_left >= 0
        assert seen[-1].bytes_read == result.stats["bytes_read"] and seen[-1].resident == result.stats["resident"]

    def test_fraction(self):
        """Two sweeps of 6 and 3 tokens, chunks of 2: 4 layers each, some reports in the middle of a layer."""
        seen = []
        report = from_core(seen.append)
        states = [(0, 1, 3, 0), (0, 3, 3, 0), (1, 0, 3, 0), (4, 0, 3, 0), (0, 1, 2, 6), (2, 0, 2, 6), (4, 0, 2, 6)]
        for layer, chunk, n_chunk, done in states:
            state = dict(layer=layer, n_layer=4, chunk=chunk, n_chunk=n_chunk, tokens_done=done, tokens=9)
            counters = dict(resident=0, ahead=0, missed=0, wasted=0, exposed_seconds=0.0)
            report(state | counters | dict(sweep_tokens=3 if done else 6, bytes_read=0, seconds=1.0))
        # 6 tokens x (1/3)/2/4; 6 x 1/2/4; 6 x 1/4; 6; 6 + 3 x (1/2)/2/4; 6 + 3 x 2/4; 9
        assert [9 * p.fraction for p in seen] == pytest.approx([0.25, 0.75, 1.5, 6, 6.1875, 7.5, 9])

    def test_progress_bar_goes_to_stderr(self, model, capsys):
        model.prefill([1, 2, 3], progress=True)
        assert capsys.readouterr().out == ""

    def test_an_error_in_progress_stops_and_the_session_goes_on(self, model):
        session = model.session()
        session.prefill([1, 2])

        def stop(p):
            if p.layer == 3:
                raise LookupError("enough")

        with pytest.raises(LookupError, match="enough"):
            session.prefill([3, 4], progress=stop)
        assert session.position == 2
        assert np.array_equal(session.prefill([3, 4]).logits, model.prefill([1, 2, 3, 4]).logits)

    def test_interrupt(self, model):
        session = model.session()

        def interrupt(p):
            if p.layer == 3:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            session.prefill([3, 4], progress=interrupt)
        assert session.position == 0
        session.prefill([3, 4])
        assert session.position == 2


class TestRefused:
    @pytest.mark.parametrize(
        ("prompt", "says"),
        [
            (None, "NoneType"),
            (b"abc", "bytes"),
            (7, "int"),
            (1.5, "float"),
            (True, "bool"),
            ({1: 2}, "dict"),
            ({1, 2}, "set"),
            (object(), "object"),
            ([1, None], "object"),
            ([1, "a"], "U"),
            ([1.0, 2.0], "float64"),
            ([True, False], "bool"),
            ([[1, 2]], r"shape \(1, 2\)"),
            ([[1], [2, 3]], "sequence of token ids"),
            (np.zeros((2, 2), np.int32), r"shape \(2, 2\)"),
            (np.array(3), "0"),
            (np.zeros(3, np.float32), "float32"),
            (np.zeros(3, np.complex64), "complex64"),
            ([], "0 tokens"),
            ("", "0 tokens"),
            (np.empty(0, np.int64), "0 tokens"),
            ([1, -1], "token id -1 at position 1 .* 512"),
            ([1, 2, 512], "token id 512 at position 2 .* 512"),
            ([2**40], "1099511627776"),
            ([2**63], "9223372036854775808"),
            ([2**70], "64 bits"),
            ([1] * 65, "65 tokens.*64"),
            ("a\ud800", "surrogate"),
        ],
    )
    def test_prompt(self, model, prompt, says):
        session = model.session()
        for call in (session.prefill, lambda p: session.generate(p, max_new_tokens=1)):
            with pytest.raises(InputError, match=says):
                call(prompt)
        assert session.position == 0

    def test_longer_than_the_rest_of_the_context(self, model):
        session = model.session()
        session.prefill([1] * 60)
        with pytest.raises(InputError, match=r"5 tokens after the 60 .* 64"):
            session.prefill([1] * 5)
        session.prefill([1] * 4)
        assert session.position == 64
        with pytest.raises(InputError, match="1 tokens after the 64"):
            session.prefill([1])

    @pytest.mark.parametrize("logits", ["first", 1, True, ["last"], b"last"])
    def test_logits(self, model, logits):
        with pytest.raises(InputError, match="logits"):
            model.prefill([1], logits=logits)

    @pytest.mark.parametrize("progress", [1, "yes", []])
    def test_progress(self, model, progress):
        with pytest.raises(InputError, match="progress"):
            model.prefill([1], progress=progress)

    @pytest.mark.parametrize("path", [None, 3, b"model.gguf", object(), []])
    def test_model(self, path):
        with pytest.raises(InputError, match="path or a loaded Model"):
            strata.prefill(path, [1])
        with pytest.raises(InputError):
            strata.load(path)

    def test_path_that_is_not_utf8(self, tiny, tmp_path):
        path = os.fsdecode(os.fsencode(tmp_path) + b"/m\xff\xfe.gguf")
        try:
            shutil.copy(tiny, path)
        except OSError:
            pytest.skip("this file system takes UTF-8 names only")
        result = strata.prefill(path, "Hello")
        assert result.tokens.tolist() == [39, 292, 75, 78]
        with pytest.raises(ModelFormatError, match="cannot be opened"):
            strata.load(path + "x")

    def test_no_such_file(self, tmp_path):
        with pytest.raises(ModelFormatError, match=r"nothing\.gguf"):
            strata.load(tmp_path / "nothing.gguf")

    def test_settings(self, tiny, model):
        with pytest.raises(ConfigError):
            strata.load(tiny, threads=-1)
        with pytest.raises(ConfigError, match="did you mean"):
            strata.prefill(tiny, [1], thread=1)
        with pytest.raises(InputError, match="config"):
            strata.load(tiny, {"threads": 1})
        with pytest.raises(InputError, match="fixed; threads"):
            strata.prefill(model, [1], threads=1)
        with pytest.raises(InputError, match="fixed; config"):
            strata.generate(model.session(), [1], max_new_tokens=1, config=Config())

    def test_closed_session(self, model):
        session = model.session()
        session.close()
        session.close()
        for call in (lambda: session.prefill([1]), lambda: session.position, lambda: strata.prefill(session, [1])):
            with pytest.raises(InputError, match="session is closed"):
                call()
        with pytest.raises(InputError), session:
            pass

    def test_closed_model(self, tiny):
        model = strata.load(tiny)
        session = model.session()
        model.close()
        model.close()
        calls = [
            model.session,
            lambda: model.prefill([1]),
            lambda: model.generate([1], max_new_tokens=1),
            lambda: model.plan,
            lambda: model.tokenizer,
            lambda: session.prefill([1]),
            lambda: session.position,
        ]
        for call in calls:
            with pytest.raises(InputError, match="closed"):
                call()
        assert model.closed and model.info["n_vocab"] == 512
        session.close()

    @pytest.mark.parametrize(
        "arguments",
        [
            {"max_new_tokens": 0},
            {"max_new_tokens": 1.5},
            {"max_new_tokens": None},
            {"max_new_tokens": True},
            {"temperature": -1},
            {"temperature": float("nan")},
            {"temperature": float("inf")},
            {"temperature": "hot"},
            {"top_k": -1},
            {"top_k": 2.0},
            {"top_p": 0},
            {"top_p": 1.1},
            {"top_p": None},
            {"seed": -1},
            {"seed": "a"},
            {"on_token": 3},
        ],
    )
    def test_generate(self, model, arguments):
        name = next(iter(arguments))
        with pytest.raises(InputError, match=name):
            model.generate([1], **{"max_new_tokens": 1, **arguments})

    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=1), inner, max_size=2),
        max_leaves=8,
    )

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
    @given(prompt=anything, logits=st.sampled_from(["last", "all", None]) | anything)
    def test_anything(self, model, prompt, logits):
        try:
            result = model.prefill(prompt, logits=logits)
        except InputError:
            return
        assert len(result.tokens) == result.session.position > 0


class TestGenerate:
    def test_greedy_is_repeated_prefill(self, model):
        session = model.session()
        got = strata.generate(session, [3, 4], max_new_tokens=6, stop_at_eos=False)
        ids = [3, 4]
        for token in got.tokens:
            assert token == int(np.argmax(model.prefill(ids).logits))
            ids.append(token)
        assert got.finish_reason == "length" and len(got.tokens) == 6
        assert got.stats["prefill"]["tokens"] == 2 and got.stats["tokens"] == 6
        assert got.text == model.tokenizer.decode(got.tokens)
        # The last token is run with what follows.
        assert session.position == 7
        more = session.prefill([9], logits="last")
        assert more.tokens.tolist() == [got.tokens[-1], 9]
        assert np.array_equal(more.logits, model.prefill([*ids, 9]).logits)

    def test_going_on(self, model):
        whole = model.generate([3], max_new_tokens=8, stop_at_eos=False)
        first = model.generate([3], max_new_tokens=5, stop_at_eos=False)
        rest = strata.generate(first.session, max_new_tokens=3, stop_at_eos=False)
        assert first.tokens + rest.tokens == whole.tokens

    def test_seed(self, model):
        def draw(seed):
            return model.generate([3], max_new_tokens=8, temperature=1.0, top_k=50, seed=seed).tokens

        assert draw(1) == draw(1) != draw(2)

    def test_on_token_gets_the_text(self, model):
        seen = []
        got = model.generate(
            "Hi", max_new_tokens=20, stop_at_eos=False, on_token=lambda i, text: seen.append((i, text))
        )
        assert "".join(text for _, text in seen) == got.text
        assert [i for i, _ in seen][:20] == got.tokens

    def test_an_error_in_on_token_leaves_a_usable_session(self, model):
        session = model.session()

        def stop(id, text):
            raise LookupError

        with pytest.raises(LookupError):
            session.generate([3], max_new_tokens=5, on_token=stop)
        assert session.position == 1
        session.generate(max_new_tokens=2)
        assert session.position == 3

    def test_end_token(self, model):
        first = model.generate([3], max_new_tokens=4, stop_at_eos=False).tokens
        model.tokenizer.eos_ids = frozenset([first[2]])
        got = model.generate([3], max_new_tokens=10)
        assert got.finish_reason == "eos" and got.tokens == first[: first.index(first[2]) + 1]

    def test_end_of_the_context(self, model):
        got = model.generate([1] * 60, max_new_tokens=100, stop_at_eos=False)
        assert got.finish_reason == "context" and got.session.position == 64 and len(got.tokens) == 5

    def test_path(self, tiny):
        got = strata.generate(tiny, "Hi", max_new_tokens=2, threads=1)
        assert got.session.model.config.threads == 1 and got.stats["lookups"] > 0


class TestSampler:
    def test_ties_go_to_the_lower_id(self):
        logits = np.array([0, 3, 1, 3, 3], np.float32)
        assert Sampler().choose(logits) == 1
        assert top(logits, 4).tolist() == [1, 3, 4, 2]
        assert Sampler(temperature=5, top_k=1).choose(logits) == 1

    def test_probabilities(self):
        p = probabilities(np.array([1000, 1000, -np.inf], np.float32))
        assert p.tolist() == [0.5, 0.5, 0]

    def test_draws_follow_the_probabilities(self):
        logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))

        def count(**limits):
            sampler = Sampler(1.0, seed=0, **limits)
            return np.bincount([sampler.choose(logits) for _ in range(4000)], minlength=4)

        assert np.allclose(count() / 4000, [0.5, 0.3, 0.15, 0.05], atol=0.03)
        assert np.allclose(count(top_k=2) / 4000, [0.625, 0.375, 0, 0], atol=0.03)
        assert (count(top_p=0.6) > 0).tolist() == [True, True, False, False]
        assert (count(top_p=1e-9) > 0).tolist() == [True, False, False, False]

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_logits_that_overflowed(self, bad):
        with pytest.raises(StrataError, match="token 1"):
            Sampler().choose(np.array([0, bad, 1], np.float32))


def test_info_plan_and_repr(model):
    assert model.info["n_layer"] == 5 and model.effective["context"] == 64
    assert all(isinstance(line, str) and count >= 0 for line, count in model.plan)
    assert "tiny-f16.gguf" in repr(model) and model.warnings == []


def test_demo_model():
    with strata.load(strata.demo_path()) as model:
        assert model.info["n_vocab"] == model.tokenizer.n_vocab == 3072
