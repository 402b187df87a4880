"""strata config: the settings in force and where each came from; what a setting is."""

from __future__ import annotations

import json
import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata.cli.knobs import KnobCommand, knob_options
from strata.config import KNOBS, OLD_ENV_PREFIX, Config, file_places, find_knob

EPILOG = """\b
Examples:
  strata config
  strata config arena_gb prompt_sweep
  strata config --arena-gb 6 --json

A setting is taken from the first that has it: option, file, environment (STRATA_<NAME>), default.
A file holds lines such as `arena_gb = 6` and is looked for as strata.toml here and among the user's settings, unless
--config or STRATA_CONFIG names one.
"""

WIDTH = 100  # of the tables when stdout is no terminal


@click.command(
    "config", cls=KnobCommand, epilog=EPILOG, short_help="Show the settings in force and where each came from."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@knob_options
def config_command(names: tuple[str, ...], as_json: bool, config: Config) -> None:
    """Shows each setting's value and where it came from; of each NAME also what it is and may be.

    Automatic values follow from a model and the memory there is: strata plan shows them.
    """
    knobs = [find_knob(name.replace("-", "_")) for name in names] or list(KNOBS.values())
    places = [str(place) for place in file_places(os.environ)]
    if as_json:
        rows = {
            knob.name: {
                **config.to_json()[knob.name],
                "default": knob.default,
                "allowed": knob.allowed,
                "unit": knob.unit,
                "variable": knob.variable,
                "landed": knob.landed,
                "help": knob.help,
            }
            for knob in knobs
        }
        click.echo(json.dumps({"files": places, "knobs": rows}))
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDTH
    table = Table(box=None, pad_edge=False, show_header=not names, expand=not names)
    if names:
        for knob in knobs:
            for label, text in _facts(knob, config):
                table.add_row(label, text)
            table.add_row()
        console.print(table)
        return
    for title in ("setting", "value", "from"):
        table.add_column(title, no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for knob in knobs:
        what = knob.help.split(". ")[0] if knob.landed else "Not in this version"
        table.add_row(knob.name, value_text(getattr(config, knob.name)), config.sources[knob.name], what)
    console.print(table)
    console.print(f"files looked for: {', '.join(places)}", soft_wrap=True)


def _facts(knob: Any, config: Config) -> list[tuple[str, str]]:
    unit = f" ({knob.unit})" if knob.unit else ""
    return [
        (knob.name, f"{value_text(getattr(config, knob.name))} ({config.sources[knob.name]})"),
        ("what", knob.help),
        ("allowed", f"{knob.allowed}{unit}; default {knob.default_text}"),
        ("spellings", f"--{knob.name.replace('_', '-')}, {knob.variable}, {OLD_ENV_PREFIX}{knob.name.upper()}"),
    ]


def value_text(value: Any) -> str:
    """A value as it is typed."""
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
