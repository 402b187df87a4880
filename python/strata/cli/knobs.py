"""Command-line options made from the table of knobs, and the lines that say which values are in force."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata.api import Model
from strata.config import KNOBS, Knob
from strata.errors import ConfigError


def _checked(knob: Knob) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """An option's callback that checks a value as its knob does."""

    def check(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else knob.parse(text)
        except ConfigError as e:
            raise click.BadParameter(str(e)) from None

    return check


def knob_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each knob; the command gets those that were given as `overrides`."""

    @functools.wraps(command)
    def with_knobs(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in KNOBS}
        return command(overrides={name: value for name, value in given.items() if value is not None}, **arguments)

    wrapped: Callable[..., Any] = with_knobs
    for knob in reversed(KNOBS.values()):
        default = "off" if knob.default in (None, False) else "on" if knob.default is True else knob.default
        if knob.type is float:
            default = f"{knob.default:g}"
        text = f"{knob.help} [default: {default}; {knob.variable}; since {knob.since}]"
        choices = ("on", "off") if knob.type is bool else knob.choices
        metavar = f"[{'|'.join(choices)}]" if choices else (knob.unit or knob.name).upper()
        name = f"--{knob.name.replace('_', '-')}"
        option = click.option(name, knob.name, metavar=metavar, callback=_checked(knob), help=text)
        wrapped = option(wrapped)
    return wrapped


def show_settings(model: Model, console: Console) -> None:
    """Prints the memory plan, the values in force, and where each value that is not a default came from."""
    for warning in model.warnings:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for line, count in model.plan:
        table.add_row(line, size(count))
    table.add_row("total", size(sum(count for _, count in model.plan)))
    console.print(f"memory plan of {model.path.name}", markup=False)
    console.print(table)
    values = ", ".join(f"{name} {value}" for name, value in model.effective.items())
    console.print(f"in force: {values}", soft_wrap=True, markup=False)
    config = model.config
    chosen = [f"{n} = {getattr(config, n)} ({s})" for n, s in config.sources.items() if s != "default"]
    if chosen:
        console.print(f"chosen: {', '.join(chosen)}", soft_wrap=True, markup=False)


def size(count: float) -> str:
    """Bytes for people: MB below a GB (powers of ten)."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
