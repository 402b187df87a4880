"""strata plan: where a model's memory would go, on this machine or a pretended one."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from strata.cli.knobs import KnobCommand, knob_options, size
from strata.cli.sizes import byte_size
from strata.config import KNOBS, Config

EPILOG = """\b
Examples:
  strata plan model.gguf
  strata plan model.gguf --ram 24G --context 65536
  strata plan model.gguf --ram 16G --prompt-sweep 4096 --json
"""

WIDTH = 100  # of the table when stdout is no terminal


@click.command("plan", cls=KnobCommand, epilog=EPILOG, short_help="Show the memory that a model would take.")
@click.argument("model")
@click.option("--ram", metavar="SIZE", callback=byte_size, help="Plan for a machine with so much memory free (24G).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@knob_options
def plan_command(model: str, ram: int | None, as_json: bool, config: Config) -> None:
    """Shows the memory that MODEL would take, line by line, without loading it; reads its header only.

    Exits with 1 when it does not fit.
    """
    if ram is not None:
        if config.sources["ram_gb"] == "argument":
            raise click.UsageError("--ram and --ram-gb say the same thing; give one of them.")
        config = config.override(ram_gb=ram / 1e9)
    report = make_report(model, config)
    if as_json:
        click.echo(json.dumps(report))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    _show(report, console)


def make_report(model: str, config: Config) -> dict[str, Any]:
    """The plan in plain values. experts: in the arena, in all, and used by one token (cycle)."""
    from strata import fit, inspect

    plan = fit.memory_plan(model, config)
    info = inspect.inspect(model, config.qsa_ratio)
    force, lines = plan["config"], plan["lines"]
    every = info.hparams["n_layer"] * info.hparams["n_expert"]
    cycle = info.hparams["n_layer"] * info.hparams["n_expert_used"]
    names = [n for n in KNOBS if n in force and n != "ram_gb"]
    return {
        "model": model,
        "file_bytes": info.total_bytes,
        "available": plan["available"],
        "pretended": config.ram_gb > 0,
        "plan": [{"line": line, "bytes": count} for line, count in lines],
        "total": sum(count for _, count in lines),
        "experts": {
            "arena": force["arena_slots"],
            "all": every,
            "percent": 100 * force["arena_slots"] / every,
            "cycle": cycle,
            "cycle_bytes": sum(b * info.hparams["n_expert_used"] for b in info.expert_bytes),
            "cycle_fits": force["arena_slots"] >= cycle,
        },
        "sweep": force["prompt_sweep"],
        "chunk": force["prompt_chunk"],
        "context": force["context"],
        "config": {n: {"value": force[n], "source": _source(config, n, force[n])} for n in names},
    }


def _source(config: Config, name: str, value: Any) -> str:
    """Where a value in force came from: who set the knob, or "automatic" when nobody did and the plan chose it."""
    source = config.sources[name]
    chosen = getattr(config, name)
    return "automatic" if chosen != value and chosen == KNOBS[name].default else source


def _show(report: dict[str, Any], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for row in report["plan"]:
        table.add_row(row["line"], size(row["bytes"]))
    table.add_row("total", size(report["total"]), end_section=True)
    where = "pretended" if report["pretended"] else "on this machine now"
    free = f"{size(report['available'])} ({where})" if report["available"] else "unknown"
    console.print(f"memory plan of {report['model']} ({size(report['file_bytes'])})", markup=False, soft_wrap=True)
    console.print(table)
    console.print(f"available: {free}")
    e = report["experts"]
    console.print(f"experts:   the arena holds {e['arena']} of {e['all']} ({e['percent']:.1f} %)")
    fits = "they fit" if e["cycle_fits"] else "more than the arena holds: each token reads some again"
    console.print(f"decoding:  one token uses {e['cycle']} experts ({size(e['cycle_bytes'])}); {fits}", soft_wrap=True)
    console.print(
        f"prompts:   sweeps of {report['sweep']} tokens in chunks of {report['chunk']}, context {report['context']}"
    )
    for title, automatic in (("chosen", False), ("automatic", True)):
        values = [
            f"{n} = {v['value']}" + ("" if automatic else f" ({v['source']})")
            for n, v in report["config"].items()
            if v["source"] != "default" and (v["source"] == "automatic") == automatic
        ]
        if values:
            console.print(f"{title + ':':11s}{', '.join(values)}", markup=False, soft_wrap=True)
