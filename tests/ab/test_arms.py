"""Arms: what the command line may say, and what is refused."""

import sys

import pytest
from strata.ab import arms
from strata.errors import ConfigError, InputError


def test_presets():
    base, patched = arms.parse_arms(["base", "patched"])
    assert base.knobs == {"prompt_pred": "0", "ple_async": "0"} and patched.knobs == {}
    assert base.environment() == {"STRATA_PROMPT_PRED": "0", "STRATA_PLE_ASYNC": "0"}


@pytest.mark.parametrize("text", ["IO_THREADS=8", "io_threads=8", "STRATA_IO_THREADS=8", "STRATA_METAL_IO_THREADS=8"])
def test_spellings_of_a_knob(text):
    assert arms.parse_arm(text).knobs == {"io_threads": "8"}


def test_names():
    assert arms.parse_arm("wide:IO_THREADS=16,PROMPT_CHUNK=64").name == "wide"
    assert arms.parse_arm("mine:base").knobs["prompt_pred"] == "0"
    assert arms.parse_arm("IO_THREADS=2").name == "IO_THREADS=2"
    assert [a.name for a in arms.parse_arms(["base", "base", "base"])] == ["base", "base-2", "base-3"]
    assert arms.parse_arm("name=x,IO_THREADS=2").name == "x"


def test_toml(tmp_path):
    (tmp_path / "fast.toml").write_text('io_threads = 8\nple_async = false\nisa = "portable"\narena_gb = 1.5\n')
    arm = arms.parse_arm(str(tmp_path / "fast.toml"))
    assert arm.name == "fast"
    assert arm.knobs == {"io_threads": "8", "ple_async": "0", "isa": "portable", "arena_gb": "1.5"}


@pytest.mark.parametrize("text", ["[table]\nx = 1\n", "io_threads = [1]\n", "io_threads = \n"])
def test_toml_that_is_no_arm(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError):
        arms.parse_arm(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nothing", InputError),
        ("no.toml", InputError),
        ("IO_THREADS", InputError),
        ("IO_THREADS=8,IO_THREADS=9", InputError),
        ("IO_THREADS=8,io_threads=9", ConfigError),
        ("IO_THREADS=many", ConfigError),
        ("IO_THREDS=8", ConfigError),
        ("arena_gb=1,arena_slots=4", ConfigError),
        ("python=a,git=b", InputError),
        ("DUMP_MOE=x", InputError),
        ("=3", InputError),
    ],
)
def test_refused(text, error):
    with pytest.raises(error):
        arms.parse_arm(text)


def test_builds():
    arm = arms.parse_arm(f"old:python={sys.executable},IO_THREADS=2,NEW_KNOB=1")
    assert arm.build == f"python={sys.executable}" and arm.knobs == {"io_threads": "2", "new_knob": "1"}
    assert arms.prepare(arm) == arms.Interpreter(sys.executable, own=False)
    assert arms.prepare(arms.parse_arm("base")).own
    for text in ("python=/no/such/python", "wheel=/no/such.whl", "git=no-such-revision-at-all"):
        with pytest.raises(InputError):
            arms.prepare(arms.parse_arm(text))


def test_a_childs_environment_has_no_knobs(monkeypatch):
    monkeypatch.setenv("STRATA_THREADS", "7")
    monkeypatch.setenv("DUMP_MOE", "x")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    env = arms.clean_env()
    assert not {"STRATA_THREADS", "DUMP_MOE", "PYTHONPATH"} & set(env)
