"""Arms: what is compared. An arm is a set of knobs, and the Python that has the build to run them with."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strata.cache import folder as kept
from strata.config import ENV_PREFIX, OLD_ENV_PREFIX, Config, find_knob
from strata.errors import ConfigError, InputError

PRESETS: dict[str, dict[str, str]] = {
    "base": {"PROMPT_PRED": "0", "PLE_ASYNC": "0"},
    "patched": {},
}
"""base: experts are guessed by a static profile and the n-gram rows are read first. patched: the defaults of today."""

BUILDS = ("python", "wheel", "git")  # keys of an arm that name another build
NAME = re.compile(r"[A-Za-z0-9_.+-]{1,40}\Z")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    knobs: knob name -> text, as an environment variable would hold it. build: "" for the strata that runs the
    comparison, else "python=PATH", "wheel=FILE" or "git=REVISION"; `prepare` turns the last two into an interpreter.
    """

    name: str
    knobs: Mapping[str, str]
    build: str = ""
    source: str = ""  # what it was made from, for the report

    def environment(self) -> dict[str, str]:
        """The variables that carry the knobs."""
        return {ENV_PREFIX + name.upper(): value for name, value in self.knobs.items()}

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON."""
        return {"name": self.name, "knobs": dict(self.knobs), "build": self.build, "source": self.source}


def parse_arm(text: str, name: str | None = None) -> Arm:
    """An arm from what a command line says.

    A preset's name ("base"); a TOML file ("fast.toml"); or KEY=VALUE,... with knobs by name in any case, with or
    without STRATA_, and optionally name=..., and one of python=PATH, wheel=FILE, git=REVISION. A name before a colon
    names the arm: "wide:IO_THREADS=16". Raises InputError, ConfigError.
    """
    given = text
    if name is None and ":" in text:
        head, _, rest = text.partition(":")
        if NAME.match(head) and (rest in PRESETS or "=" in rest or rest.endswith(".toml")):
            name, text = head, rest
    if text in PRESETS:
        return _arm(name or text, PRESETS[text], given)
    if text.endswith(".toml"):
        return _arm(name or Path(text).stem, _toml(Path(text)), given)
    if "=" not in text:
        raise InputError(
            f"{text!r} is no arm: give a preset ({', '.join(PRESETS)}), a .toml file, or KEY=VALUE,... such as "
            "PROMPT_PRED=0,IO_THREADS=8."
        )
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        if not sign or not key.strip():
            raise InputError(f"{text!r}: {part!r} is not KEY=VALUE.")
        if key.strip() in pairs:
            raise InputError(f"{text!r}: {key.strip()} is given twice.")
        pairs[key.strip()] = value.strip()
    return _arm(name or pairs.pop("name", None) or text, pairs, given)


def parse_arms(texts: list[str]) -> list[Arm]:
    """Several arms with names of their own: of equal names the later ones get a number."""
    arms: list[Arm] = []
    for text in texts:
        arm = parse_arm(text)
        names = {a.name for a in arms}
        number, base = 2, arm.name
        while arm.name in names:
            arm = dataclasses.replace(arm, name=f"{base}-{number}")
            number += 1
        arms.append(arm)
    return arms


def _arm(name: str, pairs: Mapping[str, Any], source: str) -> Arm:
    values = {str(k): str(v) for k, v in pairs.items()}
    builds = [f"{key}={values.pop(key)}" for key in BUILDS if key in values]
    if len(builds) > 1:
        raise InputError(f"arm {name}: {' and '.join(builds)} name two builds.")
    knobs: dict[str, str] = {}
    for key, value in values.items():
        knob = _knob_name(key)
        if knob in knobs and knobs[knob] != value:
            raise ConfigError(f"arm {name}: {knob} is given as {knobs[knob]} and as {value}.")
        knobs[knob] = value
    for knob in ("dump_moe",):
        if knob in knobs:
            raise InputError(f"arm {name}: {knob} is not for an arm; use --dump.")
    if not builds:
        # Another build has knobs of its own; there, its own warnings in the run say what it does not know.
        Config.layered({k: find_knob(k).parse(v) for k, v in knobs.items()})
    return Arm(name, knobs, builds[0] if builds else "", source)


def _knob_name(key: str) -> str:
    upper = key.upper()
    for prefix in (OLD_ENV_PREFIX, ENV_PREFIX):
        upper = upper.removeprefix(prefix)
    return upper.lower()


def _toml(path: Path) -> dict[str, Any]:
    try:
        tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise InputError("TOML arms need tomli on this Python: pip install 'strata-moe[ab]'.") from None
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}.") from None
    except ValueError as e:
        raise InputError(f"{path}: {e}.") from None
    for key, value in data.items():
        if isinstance(value, (dict, list)):
            raise InputError(f"{path}: {key} is a {type(value).__name__}; an arm holds single values.")
    return {key: (int(v) if isinstance(v, bool) else v) for key, v in data.items()}


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """The Python that runs an arm, and the variables its runs need beside the knobs."""

    python: str
    own: bool  # the strata that runs the comparison


def prepare(arm: Arm, cache: Path | None = None) -> Interpreter:
    """The interpreter of an arm's build; builds a wheel or revision into a virtual environment when it is new.

    cache: where such environments are kept, default the folder ab of strata's cache. Raises InputError.
    """
    if not arm.build:
        return Interpreter(sys.executable, own=True)
    kind, _, value = arm.build.partition("=")
    if kind == "python":
        found = shutil.which(os.path.expanduser(value))
        if found is None:
            raise InputError(f"arm {arm.name}: there is no Python at {value}.")
        return Interpreter(found, own=False)
    cache = cache or kept() / "ab"
    if kind == "wheel":
        wheel = Path(value).expanduser()
        if not wheel.is_file():
            raise InputError(f"arm {arm.name}: there is no wheel {wheel}.")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
        return _environment(cache / f"wheel-{digest}", [str(wheel.absolute())], arm)
    revision = _git(["rev-parse", "--verify", f"{value}^{{commit}}"], arm).strip()
    folder = cache / f"git-{revision[:16]}"
    if (folder / "done").exists():
        return Interpreter(str(folder / "bin" / "python"), own=False)
    source = folder.with_suffix(".src")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    top = _git(["rev-parse", "--show-toplevel"], arm).strip()
    with subprocess.Popen(["git", "-C", top, "archive", revision], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
    try:
        return _environment(folder, [str(source)], arm)
    finally:
        shutil.rmtree(source, ignore_errors=True)


def _environment(folder: Path, packages: list[str], arm: Arm) -> Interpreter:
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *packages], capture_output=True, text=True, env=clean_env()
        )
        if done.returncode:
            raise InputError(f"arm {arm.name}: {arm.build} cannot be installed:\n{done.stderr.strip()[-2000:]}")
        (folder / "done").touch()  # last: an interrupted build is made anew
    return Interpreter(str(python), own=False)


def clean_env() -> dict[str, str]:
    """This environment without what would point a child at this build, and without any knob."""
    drop = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DUMP_MOE"}
    return {k: v for k, v in os.environ.items() if k not in drop and not k.startswith(ENV_PREFIX)}


def _git(arguments: list[str], arm: Arm) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"arm {arm.name}: {arm.build}: {done.stderr.strip() or 'git failed'}")
    return done.stdout
