#!/usr/bin/env python3
"""Makes docs/knobs.md from the table of knobs. `python tools/make_knob_docs.py` in a working copy; a test compares."""

from __future__ import annotations

from pathlib import Path

from strata.config import BARE_ENV, KNOBS, OLD_ENV_PREFIX, Knob

PAGE = Path(__file__).resolve().parents[1] / "docs" / "knobs.md"

HEAD = """\
# Knobs

Made from the table in `python/strata/config.py` by `tools/make_knob_docs.py`; change it there.

A value is taken from the first that has one: an argument (an option of a command, a keyword in Python), a TOML file,
the environment, the default. `strata config` shows every value in force and where it came from, and so does every
result (`--json`, `result.config`).

- **Option**: `--arena-gb 6`. Given twice with two values it is an error.
- **File**: lines such as `arena_gb = 6`. The commands read the file that `--config` or `STRATA_CONFIG` names, else
  `strata.toml` in the folder they are started in, else the user's (`strata config` prints where that is). From Python
  it is read by `Config.load()`, and by `strata.load()` when `STRATA_CONFIG` names it.
- **Environment**: `STRATA_ARENA_GB=6`. The older spelling `STRATA_METAL_ARENA_GB` is read too{bare}.
  Two spellings with two values are an error. An empty variable counts as not set.
- **Unknown**: an unknown name in a file or in the environment is a warning with the nearest name, in arguments an
  error.
- **Not allowed or contradicting**: an error that says what is allowed, or which two values contradict each other and
  where they came from: `arena_gb` and `arena_slots`; `stream_fake` and `dump_moe`.

| knob | default | allowed | unit |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    bare = "".join(f", and `{variable}` without a prefix" for variable in BARE_ENV.values())
    rows = [f"| [{k.name}](#{k.name}) | {k.default_text} | {k.allowed} | {k.unit} |\n" for k in KNOBS.values()]
    return HEAD.replace("{bare}", bare) + "".join(rows) + "".join(map(_section, KNOBS.values()))


def _section(knob: Knob) -> str:
    older = [OLD_ENV_PREFIX + knob.name.upper(), *([BARE_ENV[knob.name]] if knob.name in BARE_ENV else [])]
    spellings = ", ".join(f"`{name}`" for name in (f"--{knob.name.replace('_', '-')}", knob.variable, *older))
    return f"\n## {knob.name}\n\n{knob.help}\n\n{spellings}; since {knob.since}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
