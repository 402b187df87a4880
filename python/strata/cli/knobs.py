"""Command-line options made from the table of knobs, and the lines that say which values are in force."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata import ssd
from strata.api import Model, load
from strata.config import FILE_NAME, KNOBS, Config, Knob
from strata.errors import ConfigError
from strata.fit import memory_plan

UNBROKEN = "\N{NON-BREAKING HYPHEN}"


class KnobOption(click.Option):
    """The option of a knob. Help lists it by name only: `strata config NAME` has the rest, which would fill pages."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Nothing: see KnobCommand."""


class KnobCommand(click.Command):
    """A command with the options of the knobs."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, then the names of the knobs'."""
        super().format_options(ctx, formatter)
        names = [option.opts[0] for option in self.params if isinstance(option, KnobOption)]
        with formatter.section("Settings (strata config NAME explains one)"):
            # A hyphen is where text may be broken; the name of an option is not.
            formatter.write_text(" ".join(name.replace("-", UNBROKEN) for name in names))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, with the hyphens put back."""
        super().format_help(ctx, formatter)
        formatter.buffer = [text.replace(UNBROKEN, "-") for text in formatter.buffer]


def _checked(knob: Knob) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], Any]:
    """An option's callback that checks a value as its knob does."""

    def check(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> Any:
        try:
            values = [knob.parse(text) for text in texts]
        except ConfigError as e:
            raise click.BadParameter(str(e)) from None
        if any(value != values[0] for value in values):
            given = " and ".join(map(str, values))
            raise click.BadParameter(f"{knob.name} is given as {given}; give it once.")
        return values[0] if values else None

    return check


def knob_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --config and an option for each knob; the command gets `config`, with every layer in it."""

    @functools.wraps(command)
    def with_knobs(config_file: str | None, **arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in KNOBS}
        overrides = {name: value for name, value in given.items() if value is not None}
        return command(config=Config.load(config_file, **overrides), **arguments)

    wrapped: Callable[..., Any] = with_knobs
    for knob in reversed(KNOBS.values()):
        choices = ("on", "off") if knob.type is bool else knob.choices
        wrapped = click.option(
            f"--{knob.name.replace('_', '-')}",
            knob.name,
            cls=KnobOption,
            metavar=f"[{'|'.join(choices)}]" if choices else (knob.unit or knob.name).upper(),
            multiple=True,  # given twice with two values it is an error, not the last one
            callback=_checked(knob),
            shell_complete=_completion(choices),
        )(wrapped)
    return click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False),
        help=f"A TOML file of settings.  [default: {FILE_NAME} here, then the user's]",
    )(wrapped)


def _completion(choices: tuple[str, ...]) -> Callable[..., list[str]]:
    return lambda _context, _parameter, begun: [c for c in choices if c.startswith(begun)]


def open_model(path: str, config: Config, console: Console) -> Model:
    """Loads a model; prints its memory plan before, the values in force and where chosen ones came from after."""
    plan = memory_plan(path, config)["lines"]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for line, count in plan:
        table.add_row(line, size(count))
    table.add_row("total", size(sum(count for _, count in plan)))
    console.print(f"memory plan of {os.path.basename(path)}", markup=False)
    console.print(table)
    model = load(path, config)
    for warning in model.warnings:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    values = ", ".join(f"{name} {value}" for name, value in model.effective.items())
    console.print(f"in force: {values}", soft_wrap=True, markup=False)
    chosen = [f"{n} = {getattr(config, n)} ({s})" for n, s in config.sources.items() if s != "default"]
    if chosen:
        console.print(f"chosen: {', '.join(chosen)}", soft_wrap=True, markup=False)
    return model


def drive_speed(path: str) -> float | None:
    """The probed speed of the drive of a file, in 1e9 bytes a second; None when it was not probed."""
    return ssd.cached(path)


def size(count: float) -> str:
    """Bytes for people: MB below a GB (powers of ten)."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
