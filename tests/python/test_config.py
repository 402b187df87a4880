"""The table of knobs: types, ranges, layers, environment."""

import dataclasses
import pickle

import numpy as np
import pytest
from strata import Config, ConfigError, ConfigWarning
from strata.config import KNOBS


def test_defaults():
    config = Config()
    assert config.to_core() == {
        "activations": "auto",
        "kv_type": "f16",
        "context": 0,
        "prompt_chunk": 0,
        "arena_gb": 0.0,
        "arena_slots": 0,
        "threads": 0,
        "io_threads": 4,
        "prompt_sweep": 0,
        "prompt_pred": 1,
        "prompt_pred_min": 1,
        "ple_async": True,
        "stream_fake": False,
        "popularity": "auto",
        "direct_io": "auto",
        "ram_gb": 0.0,
        "qsa_ratio": 0,
        "dump_moe": None,
        "trace": None,
        "backend": "cpu",
        "isa": "auto",
    }
    assert set(config.sources) == set(KNOBS) and set(config.sources.values()) == {"default"}


def test_every_knob_says_what_it_changes_and_never_changes():
    for knob in KNOBS.values():
        assert "hanges" in knob.help and "ever" in knob.help, knob.name
        assert knob.since and knob.allowed


def test_kv_type_follows_activations():
    assert Config(activations="f32").to_core()["kv_type"] == "f32"
    assert Config(activations="f32", kv_type="f16").to_core()["kv_type"] == "f16"


def test_frozen_equal_and_picklable():
    config = Config(threads=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.threads = 3
    assert config == Config.from_env({"STRATA_THREADS": "2"}) and hash(config) == hash(Config(threads=2))
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("threads", np.int64(3), 3),
        ("prompt_chunk", 65536, 65536),
        ("arena_gb", 2, 2.0),
        ("arena_gb", np.float32(0.5), 0.5),
        ("isa", "portable", "portable"),
        ("dump_moe", None, None),
        ("ple_async", 0, False),
        ("prompt_pred", -1, -1),
    ],
)
def test_good_values(name, value, kept):
    got = getattr(Config(**{name: value}), name)
    assert got == kept and type(got) is type(kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", -1),
        ("threads", 1.5),
        ("threads", "2"),
        ("threads", True),
        ("threads", None),
        ("threads", 10**30),
        ("prompt_chunk", -1),
        ("prompt_chunk", 65537),
        ("io_threads", 0),
        ("arena_gb", float("nan")),
        ("arena_gb", float("inf")),
        ("arena_gb", -0.1),
        ("arena_gb", "4"),
        ("isa", "AVX2"),
        ("isa", None),
        ("backend", 3),
        ("backend", ["cpu"]),
        ("dump_moe", ""),
        ("dump_moe", "a\0b"),
        ("dump_moe", 7),
        ("ple_async", "on"),
        ("ple_async", 2),
        ("prompt_pred", 3),
    ],
)
def test_bad_values(name, value):
    with pytest.raises(ConfigError) as caught:
        Config(**{name: value})
    error = caught.value
    assert error.knob == name and error.value == str(value) and error.allowed == KNOBS[name].allowed
    assert name in str(error) and error.allowed in str(error)


def test_path_object_for_a_path(tmp_path):
    assert Config(dump_moe=tmp_path / "moe.bin").dump_moe == str(tmp_path / "moe.bin")


def test_layers_and_sources():
    env = {"STRATA_THREADS": "3", "STRATA_CONTEXT": "8", "STRATA_ISA": "neon"}
    config = Config.layered({"threads": 1}, {"threads": 2, "context": 7}, env, file_name="strata.toml")
    assert (config.threads, config.context, config.isa, config.io_threads) == (1, 7, "neon", 4)
    assert config.sources["threads"] == "argument"
    assert config.sources["context"] == "strata.toml"
    assert config.sources["isa"] == "STRATA_ISA"
    assert config.sources["io_threads"] == "default"


def test_override_keeps_the_other_sources():
    config = Config.from_env({"STRATA_CONTEXT": "8"}).override(threads=4)
    assert (config.context, config.threads) == (8, 4)
    assert (config.sources["context"], config.sources["threads"]) == ("STRATA_CONTEXT", "argument")


def test_unknown_name():
    with pytest.raises(ConfigError, match="did you mean threads") as caught:
        Config.from_env({}, thraeds=4)
    assert caught.value.knob == "thraeds"
    with pytest.raises(ConfigError):
        Config().override(sources={})


def test_process_environment(monkeypatch):
    monkeypatch.setenv("STRATA_THREADS", "5")
    assert Config.from_env().threads == 5
    assert Config.from_env(threads=6).threads == 6
    assert Config().threads == 0


def test_older_spellings():
    config = Config.from_env({"STRATA_METAL_ARENA_GB": "3.5", "DUMP_MOE": "moe.bin", "THREADS": "9"})
    assert (config.arena_gb, config.dump_moe, config.threads) == (3.5, "moe.bin", 0)
    assert config.sources["dump_moe"] == "DUMP_MOE"


def test_two_spellings():
    assert Config.from_env({"STRATA_ARENA_GB": "4", "STRATA_METAL_ARENA_GB": "4.0"}).arena_gb == 4
    with pytest.raises(ConfigError, match="STRATA_DUMP_MOE = 'a' and DUMP_MOE = 'b'"):
        Config.from_env({"STRATA_DUMP_MOE": "a", "DUMP_MOE": "b"})
    with pytest.raises(ConfigError, match="STRATA_METAL_THREADS"):
        Config.from_env({"STRATA_THREADS": "1", "STRATA_METAL_THREADS": "2"}, threads=3)


def test_bad_text_names_the_variable():
    for text in ("x", "1e3", "-1", "0x10"):
        with pytest.raises(ConfigError, match="STRATA_THREADS") as caught:
            Config.from_env({"STRATA_THREADS": text})
        assert caught.value.knob == "threads" and caught.value.allowed


def test_empty_variable_is_not_set():
    assert Config.from_env({"STRATA_THREADS": ""}).sources["threads"] == "default"


def test_unknown_variable_warns():
    with pytest.warns(ConfigWarning, match="did you mean STRATA_THREADS"):
        Config.from_env({"STRATA_THRAEDS": "1"})
    with pytest.warns(ConfigWarning, match="STRATA_METAL_QQQ"):
        Config.from_env({"STRATA_METAL_QQQ": "1"})
    Config.from_env({"STRATA_DEBUG": "1", "PATH": "x", "DUMP": "y"})  # no warning, which would be an error here


@pytest.mark.parametrize("env", [{}, {"STRATA_ARENA_GB": "2"}])
def test_two_arena_sizes_contradict(env):
    arguments = {"arena_slots": 4} if env else {"arena_slots": 4, "arena_gb": 2}
    with pytest.raises(ConfigError, match="contradict") as caught:
        Config.from_env(env, **arguments)
    assert "argument" in str(caught.value) and ("STRATA_ARENA_GB" in str(caught.value)) == bool(env)
