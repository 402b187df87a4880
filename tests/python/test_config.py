"""The table of knobs: types, ranges, layers, environment."""

import dataclasses
import pickle

import numpy as np
import pytest
from strata import Config, ConfigError, ConfigWarning
from strata.config import FILE_NAME, KNOBS, read_file


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
        "io_threads": 0,
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
        "profile": False,
    }
    assert set(config.sources) == set(KNOBS) and set(config.sources.values()) == {"default"}


def test_every_knob_says_what_it_changes_and_never_changes():
    for knob in KNOBS.values():
        assert "hanges" in knob.help and "ever" in knob.help, knob.name
        assert knob.since and knob.allowed


def test_kv_type_follows_activations():
    assert Config(activations="f32").to_core()["kv_type"] == "f32"
    assert Config(activations="f32", kv_type="f16").to_core()["kv_type"] == "f16"
    assert Config(activations="int8").to_core()["kv_type"] == "f16"


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
        ("io_threads", -1),
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
    assert (config.threads, config.context, config.isa, config.io_threads) == (1, 7, "neon", 0)
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


@pytest.mark.parametrize("two", [{"arena_slots": 4, "arena_gb": 2}, {"stream_fake": True, "dump_moe": "moe"}])
def test_contradictions_name_both(two):
    with pytest.raises(ConfigError, match="contradict") as caught:
        Config(**two)
    assert all(f"{name} = " in str(caught.value) for name in two)


def test_work_that_has_not_landed():
    assert Config.from_env({"STRATA_METAL_MOCE_BONUS": "0", "STRATA_METAL_PROMPT_MOCE": "0"}).moce_bonus == 0
    for name, text in (("MOCE_BONUS", "0.85"), ("PROMPT_MOCE", "1")):
        with pytest.raises(ConfigError, match="not in this version"):
            Config.from_env({f"STRATA_METAL_{name}": text})
    assert all("Not in this version" in k.help for k in KNOBS.values() if not k.landed)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ARENA_GB", "6.5", 6.5),
        ("IO_THREADS", "8", 8),
        ("PROMPT_CHUNK", "2048", 2048),
        ("PROMPT_PRED", "0", 0),
        ("PROMPT_PRED_MIN", "2", 2),
        ("PLE_ASYNC", "0", False),
        ("STREAM_FAKE", "1", True),
        ("DUMP_MOE", "moe", "moe"),
        ("PKPROF", "1", True),
        ("MOCE_BONUS", "0", 0.0),
        ("PROMPT_MOCE", "0", False),
    ],
)
def test_names_of_the_seed_engine(name, text, value):
    for variable in (f"STRATA_METAL_{name}", f"STRATA_{name}"):
        config = Config.from_env({variable: text})
        assert getattr(config, name.lower()) == value and config.sources[name.lower()] == variable


class TestFile:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        """An empty working folder, and a home without settings."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        self.folder = tmp_path

    def write(self, text, name=FILE_NAME):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def test_order(self):
        self.write('threads = 2\ncontext = 7\nple_async = false\nisa = "neon"\narena_gb = 3\n')
        config = Config.load(env={"STRATA_CONTEXT": "8", "STRATA_IO_THREADS": "9"}, threads=1)
        assert (config.threads, config.context, config.io_threads) == (1, 7, 9)
        assert (config.ple_async, config.isa, config.arena_gb) == (False, "neon", 3.0)
        sources = [config.sources[n] for n in ("threads", "context", "io_threads", "backend")]
        assert sources == ["argument", FILE_NAME, "STRATA_IO_THREADS", "default"]

    def test_which_file(self):
        import platformdirs

        assert Config.load(env={}).threads == 0
        user = platformdirs.user_config_path("strata") / FILE_NAME
        self.write("threads = 1", user.relative_to(self.folder))
        assert Config.load(env={}).sources["threads"] == str(user)
        self.write("threads = 2")
        assert Config.load(env={}).threads == 2
        named = self.write("threads = 3", "named.toml")
        assert Config.load(env={"STRATA_CONFIG": str(named)}).threads == 3
        other = self.write("threads = 4", "other.toml")
        assert Config.load(other, env={"STRATA_CONFIG": str(named)}).threads == 4

    def test_in_python_only_a_file_that_is_named(self):
        self.write("threads = 2")
        assert Config.from_env({}).threads == 0
        assert Config.from_env({"STRATA_CONFIG": FILE_NAME}).threads == 2

    def test_unknown_name_warns(self):
        self.write("thraeds = 2")
        with pytest.warns(ConfigWarning, match=r"strata\.toml: thraeds .* did you mean threads\?"):
            assert Config.load(env={}).threads == 0

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("threads = -1", "from 0 to 1024"),
            ("threads = 1.5", "whole number"),
            ('threads = "2"', "whole number"),
            ("isa = 3", "avx2"),
            ("[threads]\nn = 1", "whole number"),
            ("threads = ", "no TOML file"),
            (b"# \xff", "no TOML file"),
        ],
    )
    def test_bad_file(self, text, says):
        self.write(text)
        with pytest.raises(ConfigError, match=says) as caught:
            Config.load(env={})
        assert FILE_NAME in str(caught.value)

    def test_no_file(self):
        with pytest.raises(ConfigError, match="No such file"):
            read_file("nothing.toml")
        with pytest.raises(ConfigError, match=r"nothing\.toml"):
            Config.load(env={"STRATA_CONFIG": "nothing.toml"})

    def test_contradiction_across_layers(self):
        self.write("arena_slots = 4")
        with pytest.raises(ConfigError, match=r"strata\.toml") as caught:
            Config.load(env={"STRATA_ARENA_GB": "2"})
        assert "STRATA_ARENA_GB" in str(caught.value)
