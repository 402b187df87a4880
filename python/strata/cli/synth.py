"""strata synth: make a model file of given shapes and size, with random weights."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from strata.cli.knobs import size as size_text
from strata.cli.sizes import byte_size

EPILOG = """\b
Examples:
  strata synth big.gguf --size 30G
  strata synth few.gguf --like demo --layers 4 --experts 16
  strata synth mixed.gguf --size 3G --types dense=Q6_K --types-at 0-1:gate=Q4_K,up=Q4_K

\b
Parts of --types: gate, up, down (of the routed experts), dense (every other
matrix, the embedding and the output), table (n-gram rows). Not given:
gate=IQ2_XS,up=IQ2_XS,down=Q2_0,dense=Q8_0,table=IQ4_NL.
"""


@click.command("synth", epilog=EPILOG, short_help="Write a model file with random weights.")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--like", type=click.Choice(["real", "demo"]), default="real", show_default=True, help="Whose shapes.")
@click.option("--layers", type=int, help="Layers; every 4th has attention. [default: the model's]")
@click.option("--experts", type=int, help="Routed experts of a layer. [default: the model's]")
@click.option(
    "--size", metavar="SIZE", callback=byte_size, help="Size of the file at most; decides layers and experts not given."
)
@click.option("--types", default="", metavar="PART=TYPE,...", help="Tensor types, see below.")
@click.option(
    "--types-at", multiple=True, metavar="LAYERS:PART=TYPE,...", help="Types of some layers (0-3,7:gate=Q4_K)."
)
@click.option("--vocab", type=int, help="Tokens of the vocabulary. [default: the model's]")
@click.option("--table-rows", type=int, help="Rows of the n-gram table, about. [default: a million; the demo's]")
@click.option("--context", type=int, help="Context length that the file names. [default: the model's]")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same file.")
@click.option(
    "--skew",
    type=click.FloatRange(0, 4),
    default=0.0,
    help="Spread of the experts' popularity, and layers predict each other: 1.9 is like the published model, 0.15 like "
    "the demo. [default: 0, all are used alike]",
)
@click.option("--force", is_flag=True, help="Replace OUT when it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def synth_command(
    out: Path,
    like: str,
    layers: int | None,
    experts: int | None,
    size: int | None,
    types: str,
    types_at: tuple[str, ...],
    vocab: int | None,
    table_rows: int | None,
    context: int | None,
    seed: int,
    skew: float,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Writes OUT, a model file of the real model's or the demo's shapes with random weights.

    For measurements and tests: it runs as a real file of that size does, and says nothing sensible. OUT appears when it
    is whole; until then the data is in OUT.partial.
    """
    from strata import synth

    if not out.absolute().parent.is_dir():
        raise click.UsageError(f"OUT: there is no folder {out.parent}.")
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; --force replaces it.")
    spec = synth.spec(
        like,
        layers=layers,
        experts=experts,
        size=size,
        types=types,
        types_at=types_at,
        vocab=vocab,
        table_rows=table_rows,
        context=context,
        seed=seed,
        skew=skew,
    )
    console = Console(stderr=True, highlight=False, quiet=quiet)
    text = f"{spec.layers} layers of {spec.experts} experts, vocabulary of {spec.vocab}"
    console.print(f"{out}: {text}, {size_text(synth.file_bytes(spec))}", markup=False, soft_wrap=True)
    start = time.perf_counter()
    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("writing"), *columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("writing")
        written = synth.make(out, spec, lambda done, total: bar.update(task, completed=done, total=total))
    seconds = time.perf_counter() - start
    if as_json:
        report = {"path": os.fspath(out), "like": like, **synth.describe(spec), "bytes": written, "seconds": seconds}
        click.echo(json.dumps(report))
    else:
        click.echo(f"{out}: {size_text(written)} in {seconds:.1f} s, {written / 1e6 / seconds:.0f} MB/s")
