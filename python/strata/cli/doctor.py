"""strata doctor: the machine, the build, the drive, on one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata.cli.knobs import KnobCommand, drive_speed, knob_options
from strata.config import Config
from strata.inspect import size_text

EPILOG = """\b
Examples:
  strata doctor
  strata doctor model.gguf --json

Exits with 1 when the check at the end fails. Put its output into a report of a problem.
"""

WIDTH = 100  # when stdout is no terminal


@click.command(
    "doctor", cls=KnobCommand, epilog=EPILOG, short_help="Show what this machine has, and whether strata works on it."
)
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=".")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@knob_options
def doctor_command(path: Path, as_json: bool, config: Config) -> int:
    """Shows what this machine has: processor, memory, build, settings, and the drive of PATH (a model or a folder).

    At the end it runs the demo model, to see that strata works here.
    """
    from strata import doctor

    facts = doctor.examine(path, config, drive_speed(str(path)))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        console = Console(highlight=False, markup=False)
        if not console.is_terminal:
            console.width = WIDTH
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(overflow="fold")
        for label, text in _lines(facts):
            table.add_row(label, text)
        console.print(table)
    return 0 if facts["check"]["works"] else 1


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    s, p, m, d, check = (facts[name] for name in ("strata", "processor", "memory", "drive", "check"))
    kind = {True: "rotating, says the system", False: "solid state", None: "of unknown kind"}[d["rotates"]]
    speed = "not probed" if d["gb_per_second"] is None else f"{d['gb_per_second']:.2f} GB/s when probed"
    chosen = [f"{n} = {v['value']} ({v['source']})" for n, v in facts["settings"]["chosen"].items()]
    total, free, usable, swap = (size_text(m[name]) for name in ("total", "free", "usable", "swap_used"))
    room, whole = size_text(d["free"]), size_text(d["size"])
    rows = [
        ("strata", f"{s['version']}, built by {s['compiler']}, Python {s['python']}, numpy {s['numpy']}"),
        ("", s["package"]),
        ("system", facts["machine"]["system"]),
        ("processor", f"{p['name'] or facts['machine']['kind']}, {p['usable']} of {p['cores']} cores usable"),
        ("", f"kernels: {', '.join(p['instruction_sets'])}"),
        ("memory", f"{total}, {free} free, {usable} usable; {swap} of swap used"),
        ("drive", d["path"]),
        ("", f"{d['file_system']} on {d['device']}, {kind}, {room} of {whole} free, {speed}"),
    ]
    if d["past_the_page_cache"] is not None:
        rows.append(("", f"reads {'bypass' if d['past_the_page_cache'] else 'go through'} the page cache"))
    rows.append(("settings", ", ".join(chosen) or "all at their defaults"))
    if check["works"]:
        rows.append(("check", f"ok: the demo model said {check['said']!r} in {check['seconds']:.2f} s"))
    else:
        rows.append(("check", f"FAILED: {check['said']!r}"))
    return rows
