"""The knobs: one table, from which come the typed `Config`, the environment variables and the command-line options.

The table is the list of fields of `Config`; docs/knobs.md is made from it. A value is taken from the first layer that
has one: argument > file > environment > default; `Config.sources` says which it was. Two values that contradict each
other are an error wherever they came from: a run must never be other than its settings say.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import platformdirs

from strata.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENV_PREFIX = "STRATA_"
OLD_ENV_PREFIX = "STRATA_METAL_"  # the older spelling, still read
BARE_ENV = {"dump_moe": "DUMP_MOE"}  # older still, for this knob only

CONFIG_ENV = "STRATA_CONFIG"  # names a file of settings
FILE_NAME = "strata.toml"

# Variables with the prefix that are no knobs: they are read by the command line and by the build and test tools.
OTHER_ENV = frozenset({CONFIG_ENV, "STRATA_DEBUG", "STRATA_BUILD_DIR", "STRATA_PREFIX", "STRATA_CLANG"})
OTHER_ENV_PREFIXES = ("STRATA_EMU_", "STRATA_TEST_")

MAX_INT = 2**31 - 1
SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class ConfigWarning(UserWarning):
    """A setting that has no effect, such as a STRATA_ variable that no knob has."""


def _knob(
    default: Any,
    help: str,
    *,
    low: float = 0,
    high: float = MAX_INT,
    unit: str = "",
    since: str = "0.1",
    landed: bool = True,
) -> Any:
    """A row of the table: a dataclass field whose metadata holds what the annotation cannot say."""
    metadata = {"default": default, "help": help, "range": (low, high), "unit": unit, "since": since, "landed": landed}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Validated settings of a loaded model. Values that are not allowed raise ConfigError.

    `Config(...)` looks at its arguments only; `Config.from_env(...)` also at the environment, and at the file that
    STRATA_CONFIG names; `Config.load(...)` at all that the commands look at. Every attribute is described in
    `KNOBS[name].help`, by `strata config NAME`, and in docs/knobs.md.
    """

    activations: Literal["auto", "int16", "int8", "f32"] = _knob(
        "auto",
        "Number format of activations in products with quantised weights. int16 rounds each to 15 bits, one scale for "
        "256 values; int8 rounds to 8 bits, 129 times coarser, in products with Q2_0, Q4_0, Q4_K, Q8_0 and IQ4_NL "
        "(gate and up only when both are of these types): faster prefills where the processor has AVX-512 with VNNI, "
        "little or no gain elsewhere; f32 keeps float32; auto is int16. Changes speed and digits of the logits "
        "(docs/exactness.md); never which weights are used.",
    )
    kv_type: Literal["auto", "f16", "f32"] = _knob(
        "auto",
        "Number format of the KV cache and the raw indexer keys; auto is f32 when activations is f32, else f16. "
        "Changes memory per token of context and the last digits of the logits; never the recurrent state, which is "
        "float32.",
    )
    context: int = _knob(
        0,
        "Tokens a session can hold; 0 = automatic, from the model and the memory there is. Changes memory and the "
        "longest prompt; never a result that fits.",
        unit="tokens",
    )
    prompt_chunk: int = _knob(
        0,
        "Rows of a prompt that go through a layer's mixer together; 0 = automatic: 1024, from 24 GB of memory 2048, "
        "from 96 GB 4096, less where memory is short. Changes speed and scratch memory; never the bits of a result.",
        high=65536,
        unit="tokens",
    )
    arena_gb: float = _knob(
        0.0,
        "Memory for routed experts, in GB (10^9 bytes); 0 = automatic, from the memory there is. Changes speed and "
        "bytes read; never the bits of a result.",
        high=1e6,
        unit="GB",
    )
    arena_slots: int = _knob(
        0,
        "Memory for routed experts as a number of experts, for tests; 0 = off, use arena_gb. Changes speed and "
        "bytes read; never the bits of a result.",
        unit="experts",
    )
    threads: int = _knob(
        0,
        "Compute threads; 0 = automatic, one for each core this process may run on. Changes speed; never the bits "
        "of a result.",
        high=1024,
        unit="threads",
    )
    io_threads: int = _knob(
        0,
        "Threads that read experts from the drive; 0 = automatic: as many as `strata ssd` found to get its full speed "
        "and at least 4, or 4 when it was not measured. Changes speed; never the bits of a result.",
        high=256,
        unit="threads",
    )
    prompt_sweep: int = _knob(
        0,
        "Rows of a prompt that go through a layer's experts together; 0 = automatic, from the memory there is. "
        "Changes speed, bytes read and scratch memory; never the bits of a result.",
        high=1 << 20,
        unit="tokens",
    )
    prompt_pred: int = _knob(
        1,
        "What guesses the experts to read ahead: 1 = the next layer's router, 0 = how often each was used so far, "
        "-1 = nothing is read ahead, 2 = pseudo-random, for tests. Changes speed and bytes read; never the bits of a "
        "result.",
        low=-1,
        high=2,
    )
    prompt_pred_min: int = _knob(
        1,
        "Tokens of a sweep that must be guessed to need an expert before it is read ahead. Changes speed and bytes "
        "read; never the bits of a result.",
        low=1,
        unit="tokens",
    )
    ple_async: bool = _knob(
        True,
        "Read the n-gram rows beside the first layers instead of before them. Changes speed; never the bits of a "
        "result.",
    )
    stream_fake: bool = _knob(
        False,
        "Read no experts and compute with what the arena holds: the time without the drive, for measurements. "
        "Changes the results to nonsense; never the work that is done with them.",
    )
    popularity: str = _knob(
        "auto",
        "What earlier runs learnt about how often each expert is used: auto = kept in the user's cache folder, off = "
        "neither read nor kept, else the path of a file. Changes speed and bytes read; never the bits of a result.",
        unit="auto, off or a path",
    )
    direct_io: Literal["auto", "on", "off"] = _knob(
        "auto",
        "Expert reads that bypass the page cache; auto does so where the system can. Changes speed and the memory "
        "other programs have; never the bits of a result.",
    )
    ram_gb: float = _knob(
        0.0,
        "Memory to plan for, in GB (10^9 bytes); 0 = what is available now. Changes every automatic size; never the "
        "bits of a result.",
        high=1e6,
        unit="GB",
    )
    qsa_ratio: int = _knob(
        0,
        "Tokens in a block of the sparse attention; 0 = follow the file. For experiments: another value than the "
        "file's changes the results. Never changes the weights that are read.",
        high=65536,
        unit="tokens",
    )
    dump_moe: str | None = _knob(
        None,
        "Folder for files of each layer's mixture of experts: inputs, router choice, outputs (docs/dumps.md). Changes "
        "speed and memory; never the bits of a result.",
        unit="path",
    )
    trace: str | None = _knob(
        None,
        "File for what ran when: segments, reads, waits, in Chrome's trace format, which Perfetto shows and "
        "strata explain sums up. Changes speed a little; never the bits of a result.",
        unit="path",
    )
    backend: Literal["cpu", "reference"] = _knob(
        "cpu",
        "What runs the model. reference is plain float32 code to compare with, very slow. Changes speed and the "
        "last digits of the logits; never which weights are used.",
    )
    isa: Literal["auto", "portable", "avx2", "avx512", "avx512vnni", "neon", "neon_dotprod", "neon_i8mm"] = _knob(
        "auto",
        "Vector instructions of the cpu backend; auto takes the best this processor has, one it lacks is refused. "
        "Changes speed; never results beyond the bounds stated in docs/exactness.md.",
    )
    pkprof: bool = _knob(
        False,
        "Measure the time of every op and kernel; `strata prefill` prints it. Changes speed a little; never the bits "
        "of a result.",
    )
    moce_bonus: float = _knob(
        0.0,
        "Bonus in the router's choice for experts that are in memory, while generating. Changes which experts are "
        "used, and so the results; never the weights. Not in this version, which routes exactly.",
        high=1,
        landed=False,
    )
    prompt_moce: bool = _knob(
        False,
        "The same bonus while a prompt runs. Changes which experts are used, and so the results; never the weights. "
        "Not in this version, which routes exactly.",
        landed=False,
    )

    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    """Where each value came from: "default", "argument", the name of a file or of an environment variable."""

    def __post_init__(self) -> None:
        sources = dict(self.sources)
        for knob in KNOBS.values():
            value = knob.check(getattr(self, knob.name))
            object.__setattr__(self, knob.name, value)
            sources.setdefault(knob.name, "default" if value == knob.default else "argument")
        object.__setattr__(self, "sources", sources)
        if self.arena_gb and self.arena_slots:
            raise self._contradiction("arena_gb", "arena_slots")
        if self.stream_fake and self.dump_moe is not None:
            raise self._contradiction("stream_fake", "dump_moe")

    def _contradiction(self, *names: str) -> ConfigError:
        given = " and ".join(f"{name} = {getattr(self, name)} ({self.sources[name]})" for name in names)
        last = names[-1]
        text = f"{given} contradict each other; give one of them."
        return _config_error(last, getattr(self, last), f"one of {' and '.join(names)}", text)

    @classmethod
    def layered(
        cls,
        arguments: Mapping[str, Any] | None = None,
        file: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        file_name: str = "file",
    ) -> Config:
        """A Config from up to three layers: argument > file > environment > default.

        arguments and file: knob name -> value; env: variable -> text. A name that is no knob is a ConfigError in
        arguments, and a ConfigWarning in a file and in a STRATA_ variable.
        """
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, (value, variable) in _read_env(env or {}).items():
            values[name], sources[name] = value, variable
        for name, value in (file or {}).items():
            if name not in KNOBS:
                _warn_unknown(f"{file_name}: {name}", name, KNOBS)
                continue
            try:
                values[name], sources[name] = KNOBS[name].check(value), file_name
            except ConfigError as e:
                raise _config_error(e.knob, e.value, e.allowed, f"{file_name}: {e}") from None
        for name, value in (arguments or {}).items():
            values[name], sources[name] = find_knob(name).check(value), "argument"
        return cls(**values, sources=sources)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """A Config from the environment (default os.environ) and the file that STRATA_CONFIG names, arguments above."""
        env = os.environ if env is None else env
        named = env.get(CONFIG_ENV)
        return cls.layered(overrides, read_file(named) if named else None, env, file_name=named or "")

    @classmethod
    def load(
        cls, file: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None, **overrides: Any
    ) -> Config:
        """A Config from all that the commands look at: arguments, a TOML file, the environment.

        file: its name; None = the first of `file_places` that is there.
        """
        env = os.environ if env is None else env
        found = find_file(env) if file is None else Path(file)
        return cls.layered(overrides, read_file(found) if found else None, env, file_name=str(found))

    def override(self, **overrides: Any) -> Config:
        """This Config with some values replaced by arguments."""
        values = {name: getattr(self, name) for name in KNOBS} | {find_knob(n).name: v for n, v in overrides.items()}
        return Config(**values, sources={**self.sources, **dict.fromkeys(overrides, "argument")})

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Name -> value and source, of every knob: what each result carries."""
        return {name: {"value": getattr(self, name), "source": self.sources[name]} for name in KNOBS}

    def to_core(self) -> dict[str, str | int | float | None]:
        """The values as the core takes them: the knobs it has by its own names, kv_type resolved to f16 or f32."""
        values: dict[str, str | int | float | None] = {
            "profile" if name == "pkprof" else name: getattr(self, name) for name, knob in KNOBS.items() if knob.landed
        }
        if self.kv_type == "auto":
            values["kv_type"] = "f32" if self.activations == "f32" else "f16"
        return values


@dataclasses.dataclass(frozen=True)
class Knob:
    """One row of the table: what a setting is called, may be, and does."""

    name: str
    type: type  # str, int, float, bool
    default: str | int | float | None  # None: off
    choices: tuple[str, ...]  # of a str with a closed set of values, else empty
    range: tuple[float, float]  # inclusive, of an int or float
    unit: str
    help: str
    since: str  # version that had it first
    landed: bool  # False: the work behind it is not in this version, and only the default is taken

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return ENV_PREFIX + self.name.upper()

    @property
    def allowed(self) -> str:
        """The values it may have, in words."""
        if not self.landed:
            return f"{self.default_text}, as it is not in this version"
        if self.choices:
            return ", ".join(self.choices)
        if self.type is str:
            return "a path" if self.unit == "path" else self.unit
        if self.type is bool:
            return "on (1, true, yes) or off (0, false, no)"
        low, high = self.range
        return f"{'a whole number' if self.type is int else 'a number'} from {low:.10g} to {high:.10g}"

    @property
    def default_text(self) -> str:
        """The default, as a person would write it."""
        if self.type is bool:
            return "on" if self.default else "off"
        return "off" if self.default is None else f"{self.default:g}" if self.type is float else str(self.default)

    def check(self, value: Any) -> str | int | float | None:
        """The value in the knob's own type; ConfigError when it is not allowed."""
        kept = self._convert(value)
        if not self.landed and kept != self.default:
            raise _config_error(self.name, value, self.allowed)
        return kept

    def _convert(self, value: Any) -> str | int | float | None:
        if value is None and self.default is None:
            return None
        if self.type is str:
            text = os.fspath(value) if isinstance(value, os.PathLike) else value
            if isinstance(text, str) and text and "\0" not in text and (not self.choices or text in self.choices):
                return text
            raise _config_error(self.name, value, self.allowed)
        if self.type is bool:
            if isinstance(value, (bool, int)) and value in (0, 1):
                return bool(value)
            raise _config_error(self.name, value, self.allowed)
        number: int | float
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value) if self.type is int else float(operator.pos(value))
        except (TypeError, ValueError, OverflowError):
            raise _config_error(self.name, value, self.allowed) from None
        low, high = self.range
        if not low <= number <= high or not math.isfinite(number):
            raise _config_error(self.name, value, self.allowed)
        return number

    def parse(self, text: str) -> str | int | float | None:
        """A value written as text (environment, command line)."""
        if self.type is str:
            return self.check(text)
        if self.type is bool:
            return self.check(SWITCH.get(text.strip().lower(), text))
        try:
            number = self.type(text)
        except ValueError:
            raise _config_error(self.name, text, self.allowed) from None
        return self.check(number)


def _table() -> dict[str, Knob]:
    hints = get_type_hints(Config)
    table = {}
    for field in dataclasses.fields(Config):
        if "help" not in field.metadata:
            continue
        hint = hints[field.name]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        kind = hint if hint in (int, float, bool) else str
        meta = field.metadata
        table[field.name] = Knob(
            field.name,
            kind,
            meta["default"],
            choices,
            meta["range"],
            meta["unit"],
            meta["help"],
            meta["since"],
            meta["landed"],
        )
    return table


KNOBS: dict[str, Knob] = _table()
"""Every knob by name, in the order in which they are listed everywhere."""


def find_knob(name: str) -> Knob:
    """The knob of that name; ConfigError, with the nearest name, when there is none."""
    if name in KNOBS:
        return KNOBS[name]
    near = difflib.get_close_matches(name, KNOBS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    names = ", ".join(KNOBS)
    raise _config_error(name, "", names, f"{name} is no knob; {hint}the knobs are: {names}.")


def file_places(env: Mapping[str, str]) -> list[Path]:
    """Where a file of settings is looked for, first to last. One that STRATA_CONFIG names stands alone."""
    if env.get(CONFIG_ENV):
        return [Path(env[CONFIG_ENV])]
    return [Path(FILE_NAME), platformdirs.user_config_path("strata") / FILE_NAME]


def find_file(env: Mapping[str, str]) -> Path | None:
    """The file of settings that is read when none is named; None when there is none."""
    if env.get(CONFIG_ENV):
        return Path(env[CONFIG_ENV])
    return next((place for place in file_places(env) if place.is_file()), None)


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a TOML file: knob names at the top level. ConfigError when it cannot be read."""
    name = os.fspath(path)
    try:
        return dict(tomllib.loads(Path(path).read_text("utf-8")))
    except OSError as e:
        raise _config_error("config", name, "a TOML file", f"{name}: {e.strerror or e}.") from None
    except ValueError as e:  # no TOML, or no UTF-8
        raise _config_error("config", name, "a TOML file", f"{name} is no TOML file: {e}.") from None


def _config_error(knob: str, value: object, allowed: str, message: str | None = None) -> ConfigError:
    error = ConfigError(message or f"{knob} = {value!r} is not allowed; allowed: {allowed}.")
    error.knob, error.value, error.allowed = knob, str(value), allowed
    return error


def _read_env(env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Knob name -> (value, variable). An empty variable counts as not set."""
    found: dict[str, tuple[Any, str]] = {}
    known = set()
    for knob in KNOBS.values():
        spellings = [knob.variable, OLD_ENV_PREFIX + knob.name.upper()]
        spellings += [BARE_ENV[knob.name]] if knob.name in BARE_ENV else []
        known.update(spellings)
        for variable in spellings:
            text = env.get(variable, "")
            if not text:
                continue
            try:
                value = knob.parse(text)
            except ConfigError as e:
                raise _config_error(e.knob, e.value, e.allowed, f"{variable}: {e}") from None
            if knob.name not in found:
                found[knob.name] = value, variable
            elif found[knob.name][0] != value:
                other, by = found[knob.name]
                message = f"{by} = {other!r} and {variable} = {value!r} set the same knob; unset one of them."
                raise _config_error(knob.name, value, "one value", message)
    for variable in env:
        if not variable.startswith(ENV_PREFIX) or variable in known or variable in OTHER_ENV:
            continue
        if not variable.startswith(OTHER_ENV_PREFIXES):
            _warn_unknown(variable, variable, known)
    return found


def _warn_unknown(text: str, name: str, known: Iterable[str]) -> None:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    warnings.warn(f"{text} is no knob of strata and has no effect{hint}", ConfigWarning, stacklevel=5)
