"""strata route-parity, strata kernel-parity: the router and single kernels against plain references."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from strata import parity

ROUTE_EPILOG = """\b
Examples:
  strata route-parity --rows 16
  strata route-parity --isa portable --verbose --json
"""

KERNEL_EPILOG = """\b
Examples:
  strata kernel-parity rms_norm
  strata kernel-parity --list
  strata kernel-parity product-Q4_K --ab git=v0.1
"""

WIDTH = 120
EXIT_FAIL = 1


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


@click.command("route-parity", epilog=ROUTE_EPILOG, short_help="Compare the router with a plain reference.")
@click.option("--isa", "isas", multiple=True, help="An instruction set; may be repeated. Default: all of this machine.")
@click.option("-k", "--top-k", default=10, show_default=True, type=click.IntRange(min=1, max=256))
@click.option("--rows", default=256, show_default=True, type=click.IntRange(min=1), help="Rows of each kind of logits.")
@click.option("--seed", default=0, show_default=True)
@click.option("--verbose", is_flag=True, help="A line for each kind of logits, also where all is well.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def route_parity_command(isas: tuple[str, ...], top_k: int, rows: int, seed: int, verbose: bool, as_json: bool) -> int:
    """Compares the router's choice with a float64 reference: 512 experts; 256 with a bonus of 0.85 for residents.

    Prompt (all rows at once) and decode (row by row) phases, random and adversarial logits: ties, infinities, NaN.
    A row whose other experts are within 8 float32 steps in probability counts as a near tie, not as a mismatch.
    Exit code 0: PASS; 1: FAIL.
    """
    cases = parity.route_parity(isas or None, k=top_k, rows=rows, seed=seed)
    good = all(c.passed for c in cases)
    if as_json:
        items = [{**dataclasses.asdict(c), "passed": c.passed} for c in cases]
        click.echo(json.dumps({"passed": good, "cases": items}, indent=1))
        return 0 if good else EXIT_FAIL
    table = Table(box=None, pad_edge=False)
    for name in ("experts", "bonus", "phase", "isa", "rows", "mismatches", "near ties", "weights", "same bits", ""):
        table.add_column(name, justify="right" if name in ("experts", "rows", "mismatches", "near ties") else "left")
    groups: dict[tuple[int, float, str, str], list[parity.RouteCase]] = {}
    for c in cases:
        groups.setdefault((c.experts, c.bonus, c.phase, c.isa), []).append(c)
    for (experts, bonus, phase, isa), group in groups.items():
        table.add_row(str(experts), f"{bonus:g}", phase, isa, *_figures(group))
        for c in group if verbose else []:
            table.add_row("", "", "", f"  {c.logits}", *_figures([c]))
    console = _console()
    console.print(table)
    for c in cases:
        if c.first and (not c.passed or verbose):
            console.print(f"{c.logits} ({c.experts}, {c.phase}, {c.isa}): {c.first}", markup=False, soft_wrap=True)
    mismatches = sum(c.mismatches for c in cases)
    console.print(f"{'PASS' if good else 'FAIL'}: {mismatches} mismatches in {sum(c.rows for c in cases)} rows")
    return 0 if good else EXIT_FAIL


def _figures(group: list[parity.RouteCase]) -> list[str]:
    return [
        str(sum(c.rows for c in group)),
        str(sum(c.mismatches for c in group)),
        str(sum(c.near_ties for c in group)),
        f"{max(c.weight_error for c in group):.1e}",
        "yes" if all(c.same_bits for c in group) else "NO",
        "PASS" if all(c.passed for c in group) else "FAIL",
    ]


@click.command("kernel-parity", epilog=KERNEL_EPILOG, short_help="Compare kernels with plain references.")
@click.argument("names", nargs=-1)
@click.option("--isa", "isas", multiple=True, help="An instruction set; may be repeated. Default: all of this machine.")
@click.option("--list", "list_only", is_flag=True, help="Print the kernels' names.")
@click.option(
    "--ab",
    "old",
    metavar="BUILD",
    help="Compare ONE kernel with that of another build: python=PATH, wheel=FILE or git=REVISION.",
)
@click.option("--pairs", default=20, show_default=True, type=click.IntRange(min=1), help="Pairs of runs with --ab.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def kernel_parity_command(
    names: tuple[str, ...], isas: tuple[str, ...], list_only: bool, old: str | None, pairs: int, as_json: bool
) -> int:
    """Compares kernels with float64 references over their grids, in every instruction set, and their bits.

    NAMES: kernels, or the part before "-" of several ("product"); all when none is given. Exit code 0: PASS; 1: FAIL.
    """
    if list_only:
        click.echo("\n".join(parity.kernels()))
        return 0
    if old is not None:
        if len(names) != 1 or len(isas) > 1:
            raise click.UsageError("--ab takes one kernel and at most one --isa.")
        return _ab(names[0], isas[0] if isas else "auto", old, pairs, as_json)
    results = parity.kernel_parity(names or None, isas or None)
    good = all(r.passed for r in results)
    if as_json:
        items = [{**dataclasses.asdict(r), "passed": r.passed} for r in results]
        click.echo(json.dumps({"passed": good, "kernels": items}, indent=1))
        return 0 if good else EXIT_FAIL
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "isa", "cases", "worst error / bound", "at", "same bits", ""):
        table.add_column(name, justify="right" if name in ("cases", "worst error / bound") else "left")
    for r in results:
        row = (r.kernel, r.isa, str(r.cases), f"{r.worst:.2g}", r.worst_case, "yes" if r.same_bits else "NO")
        table.add_row(*row, "PASS" if r.passed else "FAIL")
    console = _console()
    console.print(table)
    console.print(f"{'PASS' if good else 'FAIL'}: {len(results)} kernels and instruction sets")
    return 0 if good else EXIT_FAIL


def _ab(name: str, isa: str, old: str, pairs: int, as_json: bool) -> int:
    import numpy as np

    from strata.ab import arms, stats

    arm = arms.parse_arm(old, "old")
    if not arm.build or arm.knobs:
        raise click.UsageError("--ab takes python=PATH, wheel=FILE or git=REVISION.")
    where = arms.prepare(arm)
    package = str(Path(parity.__file__).parents[1])
    own = arms.clean_env() | {"PYTHONPATH": os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH")) if p)}
    result = parity.kernel_ab(
        name, where.python, isa=isa, pairs=pairs, environment=arms.clean_env(), own_environment=own
    )
    ratios = np.log(np.array(result.new_seconds) / np.array(result.old_seconds))
    v = stats.verdict(ratios, stats.ALPHA)
    equal = not result.different
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(result), "equal": equal, "time": v.to_json()}, indent=1))
    else:
        first = "the same bits in all cases" if equal else f"OTHER BITS in {', '.join(result.different)}"
        click.echo(f"{name} ({isa}), {result.cases} cases: {first}")
        click.echo(stats.in_words(v, "this build", arm.build, "time of the grid", -1))
    return 0 if equal else EXIT_FAIL
