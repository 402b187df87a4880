"""strata ssd: how fast a drive gives experts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from strata import ssd
from strata.cli.knobs import size as size_text
from strata.cli.sizes import byte_size

EPILOG = """\b
Examples:
  strata ssd model.gguf
  strata ssd model.gguf --threads 4 --seconds 0.2
  strata ssd /data

\b
The result is kept for the volume in the user's cache folder: the best rate is
the floor in summaries, and automatic io_threads are the fewest threads that
come within 3 % of it, 4 at least. One with --size, --threads or --seconds is
not kept.
"""


def _counts(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        counts = tuple(int(n) for n in text.split(","))
    except ValueError:
        counts = ()
    if not counts or not all(1 <= n <= 256 for n in counts):
        raise click.BadParameter(f"{text!r}: write numbers of 1 to 256 with commas between them, such as 1,4,8.")
    return counts


@click.command("ssd", epilog=EPILOG, short_help="Measure how fast a drive gives experts.")
@click.argument("path", metavar="FILE|DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--size", metavar="SIZE", callback=byte_size, help="Bytes of a read. [default: an expert's; 1.408M]")
@click.option("--threads", metavar="N,N,...", callback=_counts, help="Threads to try. [default: 1,2,4,8,16,32]")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), help="Time of all reads. [default: 8]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr.")
def ssd_command(
    path: Path, size: int | None, threads: tuple[int, ...] | None, seconds: float | None, as_json: bool, quiet: bool
) -> None:
    """Measures a drive: random reads of an expert's size past the page cache, with 1 to 32 threads.

    A FILE is only read; it should be large, at best the model itself. Of a DIR the volume is measured, in a temporary
    file of up to 1.07 GB that is removed again.
    """
    note = Console(stderr=True, highlight=False, quiet=quiet)
    usual = size is None and threads is None and seconds is None
    size = ssd.read_size(path) if size is None else size
    with contextlib.ExitStack() as stack:
        file = path
        if path.is_dir():
            note.print(f"writing a temporary file in {path}", markup=False, soft_wrap=True)
            file = stack.enter_context(ssd.scratch(path, ssd.SCRATCH_BYTES, ssd.SCRATCH_SECONDS))
        bar = stack.enter_context(note.status("reading")) if note.is_terminal else None

        def show(rate: ssd.Rate) -> None:
            if bar is not None:
                bar.update(f"{rate.threads} threads: {rate.gb_per_second:.2f} GB/s")

        result = ssd.probe(
            file, size=size, threads=threads or ssd.THREADS, seconds=seconds or ssd.SECONDS, progress=show
        )
        kept = _keep(result, note) if usual and result.bypassed else None
    readers = ssd.readers(path) if kept else None
    if file != path:
        note.print("the temporary file is removed", markup=False)
    if as_json:
        rates = [asdict(r) | {"gb_per_second": r.gb_per_second} for r in result.rates]
        best = {"gb_per_second": result.best.gb_per_second, "threads": result.best.threads}
        fields = asdict(result) | {"path": str(path), "rates": rates, "best": best, "kept": kept and str(kept)}
        fields["io_threads"] = readers
        click.echo(json.dumps(fields))
    else:
        _show(path, result)
        if readers:
            click.echo(f"io_threads on this volume, unless set: {readers}")
    if not result.bypassed:
        note.print("warning: the system does not read past its page cache here: not the drive's speed", soft_wrap=True)
    elif result.repeated:
        note.print(
            f"note: the file ({size_text(result.file_bytes)}) was read more than once over; a cache in the drive may "
            "have made it faster",
            soft_wrap=True,
        )


def _show(path: Path, result: ssd.Probe) -> None:
    console = Console(highlight=False)
    table = Table("threads", "GB/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "reads", box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for r in result.rates:
        style = "bold" if r is result.best else None
        latencies = (f"{v:.2f}" for v in (r.p50, r.p90, r.p99, r.max))
        table.add_row(str(r.threads), f"{r.gb_per_second:.2f}", *latencies, str(r.reads), style=style)
    console.print(f"{path}: random reads of {size_text(result.size)}", markup=False, soft_wrap=True)
    console.print(table)
    console.print(f"best: {result.best.gb_per_second:.2f} GB/s with {result.best.threads} threads")


def _keep(result: ssd.Probe, note: Console) -> Path | None:
    try:
        return ssd.save(result)
    except OSError as e:
        note.print(f"warning: the result is not kept: {e}", markup=False, soft_wrap=True)
        return None
