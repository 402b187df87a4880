"""strata replay: how many experts each eviction policy would read for a recorded routing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata.cli.plan import WIDTH

EPILOG = """\b
Examples:
  strata prefill model.gguf -f prompt.txt --record run.npz
  strata replay run.npz
  strata replay run.npz --arena 18 --sweep 8192 --decode 128

\b
Policies: engine (the one strata has), lru, clock, lfu, and belady, which
knows the future: no policy reads less.
"""


def _shares(_: click.Context, __: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(n) for n in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 < n <= 100 for n in shares):
        raise click.BadParameter(f"{text!r}: write percentages with commas between them, such as 5,10,18.")
    return shares


@click.command("replay", epilog=EPILOG)
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--arena",
    "shares",
    default="2,5,10,20,50,100",
    show_default=True,
    metavar="PERCENT,...",
    callback=_shares,
    help="Sizes of the arena: shares of all experts.",
)
@click.option("--slots", type=click.IntRange(1), help="One arena of so many experts instead.")
@click.option("--sweep", type=click.IntRange(1), default=16384, show_default=True, help="Rows that share a reading.")
@click.option("--chunk", type=click.IntRange(1), default=1024, show_default=True, help="Rows of a router pass.")
@click.option("--decode", type=click.IntRange(0), default=0, help="So many of the last tokens come one by one.")
@click.option("--times", type=click.IntRange(1), default=1, help="The recording so many times over.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay_command(
    trace: Path,
    shares: tuple[float, ...],
    slots: int | None,
    sweep: int,
    chunk: int,
    decode: int,
    times: int,
    as_json: bool,
) -> None:
    """Counts the reads of TRACE, a recording made with `strata prefill --record`, for each policy and arena.

    The arena is empty at first. Guesses are left out: what is used and not in the arena is one read.
    """
    from strata import replay, routing

    run = routing.load(trace)
    decode = min(decode, run.rows)
    every = run.layers * run.experts
    sizes = [max(1, round(every * share / 100)) for share in shares] if slots is None else [slots]
    results = [
        replay.replay(run, policy, n, sweep=sweep, chunk=chunk, decode=decode, times=times)
        for policy in replay.POLICIES
        for n in sizes
    ]
    if as_json:
        report: dict[str, Any] = {"trace": str(trace), "tokens": run.rows, "layers": run.layers, "experts": run.experts}
        rows = [
            {
                "policy": r.policy,
                "slots": r.slots,
                "arena_percent": 100 * r.slots / every,
                "prompt": {"lookups": r.prompt.lookups, "reads": r.prompt.reads},
                "decode": {"lookups": r.decode.lookups, "reads": r.decode.reads},
            }
            for r in results
        ]
        settings = {"sweep": sweep, "chunk": chunk, "decode": decode, "times": times}
        click.echo(json.dumps(report | settings | {"results": rows}))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(f"{trace}: {run.rows} tokens, {run.layers} layers of {run.experts} experts", markup=False)
    for part, wanted in (("prompt", run.rows > decode), ("decode", decode > 0)):
        if not wanted:
            continue
        console.print(f"reads of experts, {part} (hits)")
        table = Table("policy", *(f"{n} slots, {100 * n / every:.3g} %" for n in sizes), box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for policy in replay.POLICIES:
            tallies = [getattr(r, part) for r in results if r.policy == policy]
            table.add_row(policy, *(f"{t.reads} ({t.hits:.0%})" for t in tallies))
        console.print(table)
