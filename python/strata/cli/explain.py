"""strata explain: where the wall of a run went, by layer."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

EPILOG = """\b
Examples:
  strata prefill --demo --trace run.json
  strata explain run.json

\b
https://ui.perfetto.dev opens the file too: reads of each thread, waits, segments.
"""


@click.command("explain", epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(trace: Path, as_json: bool) -> None:
    """Sums up TRACE, a file written with --trace: seconds by layer, waits, how busy the drive was, what would help."""
    from strata import explain

    found = explain.explain(explain.load(trace))
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("layer", "mixer s", "experts s", "of it waiting s", "drive busy %", "reads", "GB"):
        table.add_column(name, justify="right")
    for n, x in sorted(found.layers.items()):
        ran = x.mixer + x.experts + x.rows_wait
        busy = f"{100 * x.busy / ran:.0f}" if ran else "-"
        wait = x.wait + x.rows_wait
        table.add_row(
            str(n), f"{x.mixer:.3f}", f"{x.experts:.3f}", f"{wait:.3f}", busy, str(x.reads), f"{x.bytes / 1e9:.3f}"
        )
    console = Console(highlight=False)
    console.print(table)
    if not found.whole:
        console.print("The trace has no end: the run is still going, or was cut short.")
    console.print(
        f"wall {found.wall:.3f} s: computing {found.compute:.3f}, waiting {found.wait:.3f}; drive busy "
        f"{100 * found.drive_share:.0f} % of it; {found.reads} reads, {found.bytes / 1e9:.3f} GB"
    )
    console.print(f"It was {found.verdict()}\nWould help most: {found.hint()}", soft_wrap=True)
