"""strata kld: how far are the distributions of a model from those of a reference?"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from strata.api import Model, demo_path
from strata.cli.knobs import KnobCommand, knob_options, open_model
from strata.cli.prompt import parse_ids, read_text
from strata.config import Config
from strata.errors import InputError

EPILOG = """\b
Examples:
  strata kld model.gguf -f text.txt --logits-out ref.logits --activations f32 --no-floor
  strata kld model.gguf --logits-ref ref.logits --isa portable
  strata kld model.gguf --logits-ref base.kld     (written by llama-perplexity)

\b
Exit codes: 0 done; 1 an error; 2 wrong usage.
"""

WIDTH = 120
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_TEXT = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command(
    "kld", cls=KnobCommand, epilog=EPILOG, short_help="Compare the distributions of a model with those of a reference."
)
@click.argument("model", required=False)
@click.option("--demo", is_flag=True, help="Use the model that comes with strata.")
@click.option("-f", "--file", type=_TEXT, help="A text (UTF-8): the prompt, and the tokens to force; - is stdin.")
@click.option("--tokens", type=_TEXT, help="A file of token ids instead; - is stdin.")
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="N: run first.")
@click.option("--forced-tokens", type=click.IntRange(min=1), help="M: forced after them. Default: all that follow.")
@click.option("--logits-out", type=click.Path(dir_okay=False, path_type=Path), help="Write the logits to this file.")
@click.option("--logits-ref", type=_FILE, help="Compare with this file: strata's, or llama-perplexity's.")
@click.option("--top-k", type=click.IntRange(min=1), default=5, show_default=True, help="For the top-k agreement.")
@click.option("--steps", is_flag=True, help="Force each token in a decode step of its own, not many at a time.")
@click.option("--no-floor", is_flag=True, help="Do not run the model a second time for the noise floor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No plan and progress on stderr.")
@knob_options
def kld_command(
    model: str | None,
    demo: bool,
    file: str | None,
    tokens: str | None,
    prompt_tokens: int,
    forced_tokens: int | None,
    logits_out: Path | None,
    logits_ref: Path | None,
    top_k: int,
    steps: bool,
    no_floor: bool,
    as_json: bool,
    quiet: bool,
    config: Config,
) -> None:
    """Teacher-forced: N tokens of a text are run, M forced, and the distributions after each compared.

    Prints mean and percentiles of the KL divergence from the reference, agreement of the most likely tokens, both
    perplexities, the places that are furthest apart, and beside it all the same figures for a second run of this model
    against its first: the noise floor.
    """
    from strata import kld

    if demo == (model is not None):
        raise click.UsageError("give a MODEL, or --demo (not both).")
    if logits_out is None and logits_ref is None:
        raise click.UsageError("give --logits-out, --logits-ref, or both.")
    console = Console(stderr=True, highlight=False, quiet=quiet)
    with (
        open_model(str(demo_path()) if model is None else model, config, console) as loaded,
        tempfile.TemporaryDirectory() as tmp,
    ):
        reference = None if logits_ref is None else kld.Reference(logits_ref)
        given = _given(loaded, file, tokens)
        if reference is not None:
            windows = reference.windows
            if given is not None and not np.array_equal(given[: len(windows[0].tokens)], windows[0].tokens):
                raise InputError(f"the text given has other tokens than {logits_ref}; leave it out to use those.")
        else:
            if given is None:
                raise click.UsageError("give a text with --file or --tokens.")
            last = len(given) if forced_tokens is None else prompt_tokens + forced_tokens
            if last > len(given) or prompt_tokens >= last:
                raise InputError(
                    f"the text has {len(given)} tokens; {prompt_tokens} to run and {forced_tokens or 1} to force are "
                    "wanted."
                )
            windows = [kld.Window(given[:last], prompt_tokens - 1)]
        report: dict[str, Any] = {"model": loaded.path.name, "places": sum(w.places for w in windows)}
        report |= {"config": loaded.config.to_json(), "effective": loaded.effective}
        with Progress(console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
            task = bar.add_task("running", total=None)

            def say(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            if logits_out is not None:
                if len(windows) > 1:
                    raise InputError("--logits-out takes one window; a file of llama.cpp has several.")
                report["perplexity"] = kld.save(logits_out, loaded, windows[0], steps=steps, say=say)
            found = floor = None
            if reference is not None:
                found = kld.compare(loaded, reference, k=top_k, steps=steps, say=say)
                report["against"] = {"file": logits_ref.name if logits_ref else "", "kind": reference.kind}
                report["divergence"] = found.to_json()
            if not no_floor:
                bar.update(task, description="again")
                first = logits_out
                if first is None:
                    first = Path(tmp) / "first"
                    kld.save(first, loaded, windows[0], steps=steps, say=say)
                floor = kld.compare(loaded, kld.Reference(first), k=top_k, steps=steps, say=say)
                report["floor"] = floor.to_json()
    if as_json:
        click.echo(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        _show(report, found, floor)


def _given(model: Model, file: str | None, tokens: str | None) -> Any:
    if file is not None and tokens is not None:
        raise click.UsageError("give one of --file and --tokens.")
    if file is not None:
        return np.array(model.tokenizer.encode(read_text(file)), np.int32)
    return None if tokens is None else np.array(parse_ids(read_text(tokens), tokens), np.int32)


def _show(report: dict[str, Any], found: Any, floor: Any) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    columns = [(f"against {report['against']['file']}", found)] if found is not None else []
    columns += [("against itself (noise floor)", floor)] if floor is not None else []
    console.print(f"{report['model']}, {report['places']} places", markup=False)
    if "perplexity" in report:
        console.print(f"perplexity {report['perplexity']:.5f}")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    rows: list[tuple[str, Any]] = [("KLD, mean", lambda d: f"{d.mean:.3e}")]
    if columns:
        for q in columns[0][1].percentiles:
            rows.append((f"KLD, {q} %", lambda d, q=q: f"{d.percentiles[q]:.3e}"))
    rows += [
        ("KLD, most", lambda d: f"{d.maximum:.3e}"),
        ("same most likely token", lambda d: f"{d.top1:.3%}"),
        (f"same of the top {columns[0][1].k if columns else 0}", lambda d: f"{d.topk:.3%}"),
        ("perplexity, reference", lambda d: f"{d.perplexity_ref:.5f}"),
        ("perplexity", lambda d: f"{d.perplexity:.5f}"),
        ("logits the same bits", lambda d: {None: "-", True: "yes", False: "no"}[d.equal_bits]),
    ]
    for name, cell in rows:
        table.add_row(name, *(cell(d) for _, d in columns))
    if columns:
        console.print(table)
    if found is None:
        return
    if found.first_flip is not None:
        f = found.first_flip
        console.print(
            f"first place with another most likely token: {f.position}, {f.ref_top!r} (log-probability {f.ref_gap:.3g} "
            f"above the next) and {f.own_top!r} ({f.own_gap:.3g})",
            markup=False,
        )
    if found.maximum > 0:
        worst = Table(box=None, pad_edge=False, title="places furthest apart", title_justify="left")
        for name in ("place", "KLD", "text before", "follows", "reference", "model"):
            worst.add_column(name, justify="right" if name in ("place", "KLD") else "left", no_wrap=True)
        for p in found.worst:
            cells = (repr(p.before[-40:]), repr(p.forced), repr(p.ref_top), repr(p.own_top))
            worst.add_row(f"{p.window}:{p.position}", f"{p.kld:.2e}", *cells)
        console.print(worst)
