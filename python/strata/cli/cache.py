"""strata cache: what strata keeps on this machine, how big it is, and how to be rid of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from strata import cache
from strata.errors import InputError
from strata.inspect import size_text

EPILOG = """\b
Examples:
  strata cache
  strata cache --clear ab
  strata cache --clear --json

A model file is read where it lies; no copy of it is kept.
"""

WHAT = {
    "ab": "other builds, made for strata-ab",
    "popularity": "how often each expert of a model was used",
    "ssd": "probed speeds of drives",
}


@click.command("cache", epilog=EPILOG, short_help="Show or clear what strata keeps on this machine.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--clear", is_flag=True, help="Remove what is listed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache_command(names: tuple[str, ...], clear: bool, as_json: bool) -> None:
    """Shows where strata keeps things, and how big they are; only those of each NAME when one is given."""
    root = cache.folder()
    kept = {path.name: path for path in sorted(root.iterdir())} if root.is_dir() else {}
    for name in names:
        if name not in kept:
            raise InputError(f"nothing is kept as {name!r}; there is: {', '.join(kept) or 'nothing'}.")
    # Without names, only what is known to be strata's is removed.
    chosen = {name: path for name, path in kept.items() if name in (names or (WHAT if clear else kept))}
    rows = [
        {"name": name, "path": str(path), "bytes": _bytes(path), "what": WHAT.get(name, "")}
        for name, path in chosen.items()
    ]
    if clear:
        for path in chosen.values():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if as_json:
        click.echo(json.dumps({"folder": str(root), "cleared": clear, "kept": rows}))
        return
    console = Console(highlight=False, markup=False)
    console.print(f"{root}: {'nothing' if not rows else ''}", soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(str(row["name"]), size_text(int(str(row["bytes"]))), str(row["what"]))
    if rows:
        console.print(table)
    if clear and rows:
        console.print("removed.")


def _bytes(path: Path) -> int:
    """Of a file, or of all files in a folder; links count as nothing."""
    if path.is_dir() and not path.is_symlink():
        return sum(_bytes(inside) for inside in path.iterdir())
    return 0 if path.is_symlink() else path.stat().st_size
