"""Numbers against the goldens of tests/data/oracle: logits, greedy continuation, and every intermediate on the way."""

import check
import gguf_io
import numpy as np
import pytest
from engine_cases import ORACLE, open_engine, oracle_function, path_of, prompt, prompts, run

# Code without vector instructions takes seconds on the larger ones: one of them in the quick set.
SLOW_SMALL = [
    pytest.param(name, marks=[pytest.mark.long] if name.startswith("small") and name != "small-q8_0" else [])
    for name in ORACLE
]


def every_prompt(name, int8=False, **knobs):
    call = oracle_function(open_engine(name, **knobs))
    golden = check.load(name)
    for case, ids in prompts().items():
        ok, line = check.check_case(name, case, call(ids, len(golden[case + "/greedy"])), int8, golden)
        yield case, ok, line


def test_the_models_are_all_here():
    assert sorted(ORACLE) == check.models() and len(prompts()) == 6


@pytest.mark.parametrize("name", ORACLE)
@pytest.mark.parametrize("knobs", [{}, {"prompt_chunk": 7}], ids=["default", "chunk7"])
def test_float32(name, knobs):
    """Logits within 2e-4, experts, blocks, table rows and greedy tokens equal, intermediates within 1e-4."""
    wrong = [f"{case}: {line}" for case, ok, line in every_prompt(name, **knobs) if not ok]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SLOW_SMALL)
def test_portable_code(name):
    wrong = [f"{case}: {line}" for case, ok, line in every_prompt(name, isa="portable") if not ok]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SLOW_SMALL)
def test_plain_reference_backend(name):
    wrong = [f"{case}: {line}" for case, ok, line in every_prompt(name, backend="reference") if not ok]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ORACLE)
def test_automatic_activations(name):
    """Default settings, F16 cache: within the limits for engines that round activations."""
    wrong = [f"{case}: {line}" for case, ok, line in every_prompt(name, int8=True, activations="auto") if not ok]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ORACLE)
def test_int8_activations(name):
    """Within the same limits, which are for engines that round activations to 8 bits."""
    wrong = [f"{case}: {line}" for case, ok, line in every_prompt(name, int8=True, activations="int8") if not ok]
    assert not wrong, "\n".join(wrong)


def rms(x):
    x = x.astype(np.float64)
    return np.sqrt(((x - x.mean(1, keepdims=True)) ** 2).mean(1))


@pytest.mark.parametrize("name", [n for n in ORACLE if n.startswith("small")])
def test_int8_is_int16_with_a_larger_step(name):
    """Rounding to multiples of top / 127 instead of top / 16383 makes errors 16383 / 127 = 129 times as large, if all
    products take int8, and carries them on in proportion as long as no router or block chooses otherwise, so for the
    median row. Half as much again for chance; a tenth at least, or the mode would not be in force."""
    logits = {}
    for mode in ("f32", "int16", "int8"):
        engine = open_engine(name, activations=mode, kv_type="f32")
        rows = [engine.prefill(engine.session(), ids, "all")[0] for ids in prompts().values()]
        logits[mode] = np.concatenate(rows)
    small, large = (np.median(rms(logits[mode] - logits["f32"])) for mode in ("int16", "int8"))
    assert 0.1 * 129 * small < large < 1.5 * 129 * small


@pytest.mark.parametrize("name", ["tiny-f32", "small-iq2xs-q2_0", "demo"])
@pytest.mark.parametrize("parts", [2, 5])
def test_split_copy(name, parts, tmp_path):
    """A set of several files gives the bits of the one file."""
    gguf_io.split_gguf(str(path_of(name)), parts, str(tmp_path / "part"))
    ids = prompt(name, 100)
    first = tmp_path / f"part-00001-of-{parts:05d}.gguf"
    split = run(first, ids, tmp_path / "dump")
    assert split.differs(run(name, ids, tmp_path / "dump")) == ""


def test_the_check_itself():
    """What is right passes, what is slightly wrong does not."""
    name, case = "tiny-f32", "p64"
    got = oracle_function(open_engine(name))(prompts()[case], 16)
    assert check.check_case(name, case, got)[0]
    assert not check.check_case(name, case, {**got, "logits": got["logits"] + np.float32(3e-4)})[0]
    for tap, what in (("L0/S", 2e-4), ("L2/qsa_blocks", 1), ("L4/router_ids", 1), ("L1/ple_out", 1e-2)):
        bad = np.array(got["taps"][tap], np.float64)
        bad[-2] += what
        ok, line = check.check_case(name, case, {**got, "taps": {**got["taps"], tap: bad}})
        assert not ok and f"FIRST DIVERGENCE {tap}" in line
