"""strata prefill: run a prompt, show what came next and what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from strata import sampling
from strata.api import Model, PrefillResult, Session
from strata.cli.knobs import KnobCommand, drive_speed, knob_options, open_model, size
from strata.cli.prompt import prompt_options
from strata.config import Config
from strata.progress import Reporter
from strata.summary import Summary, summarize

TOP = 5
TAIL = 60  # characters of the prompt that are shown

EPILOG = """\b
Examples:
  strata prefill --demo
  strata prefill model.gguf -f prompt.txt --arena-gb 12
  strata prefill model.gguf --tokens ids.json --json --logits-out logits.npy
"""


@click.command(
    "prefill", cls=KnobCommand, epilog=EPILOG, short_help="Run a prompt; show its cost and the most likely next tokens."
)
@prompt_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option(
    "--logits-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the logits to this file, float32 in numpy's format: [vocab], or [T, vocab] with --logits all.",
)
@click.option(
    "--logits", type=click.Choice(["last", "all"]), default="last", show_default=True, help="Which logits to write."
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the experts that each token chose, and the guesses, to this file (npz) for `strata replay`.",
)
@click.option("-q", "--quiet", is_flag=True, help="No plan, progress or summary on stderr.")
@knob_options
def prefill_command(
    model: str,
    prompt: str | list[int],
    parse_special: bool,
    as_json: bool,
    logits_out: Path | None,
    logits: str,
    record: Path | None,
    quiet: bool,
    config: Config,
) -> None:
    """Runs a prompt through MODEL and prints its cost and the most likely next tokens.

    Prompts are taken as they are: no escapes in --prompt unless --escapes is given, every byte of a file kept.
    """
    if logits == "all" and logits_out is None:
        raise click.UsageError("--logits all is for --logits-out.")
    if logits_out is not None and not logits_out.absolute().parent.is_dir():
        raise click.UsageError(f"--logits-out: there is no folder {logits_out.parent}.")
    if record is not None and not record.absolute().parent.is_dir():
        raise click.UsageError(f"--record: there is no folder {record.parent}.")
    console = Console(stderr=True, highlight=False, quiet=quiet)
    with open_model(model, config, console) as loaded:
        session = loaded.session()
        result = run_prompt(
            session,
            prompt,
            console,
            logits="all" if logits == "all" else "last",
            parse_special=parse_special,
            record=record is not None,
        )
        cost = summary(loaded, result.stats)
        console.print(cost.text(), markup=False, soft_wrap=True)
        profile = loaded.profile()
        if profile:
            console.print(profile_table(profile))
        assert result.logits is not None
        if record is not None:
            assert result.routing is not None
            result.routing.save(record)
        if logits_out is not None:
            with logits_out.open("wb") as file:  # np.save would add .npy to a name without it
                np.save(file, result.logits)
        report = _report(loaded, result) | {"summary": cost.to_json(), "profile": profile}
        tail = _tail(loaded, result)
    click.echo(json.dumps(report, default=_plain, ensure_ascii=False) if as_json else _text(report, tail))


def run_prompt(session: Session, prompt: str | list[int], console: Console, **arguments: Any) -> PrefillResult:
    """A prefill with progress on the console. Ctrl-C prints what was done and exits 130."""
    reporter = Reporter(console, drive_speed(str(session.model.path)))
    try:
        with reporter:
            return session.prefill(prompt, progress=reporter, **arguments)
    except KeyboardInterrupt as e:
        if console.quiet:
            click.echo(reporter.last_line(e), err=True)
        raise click.exceptions.Exit(130) from None


def summary(model: Model, stats: dict[str, Any]) -> Summary:
    """What a prefill of this model cost."""
    drive = drive_speed(str(model.path))
    return summarize(stats, model.effective, model.plan, drive_gb_s=drive, experts_of_layer=model.info["n_expert"])


def profile_table(rows: list[tuple[str, str, int, float, float, float]]) -> Table:
    """Time of each op and kernel, the longest first."""
    total = sum(row[3] for row in rows)
    table = Table("op", "kernel", "runs", "seconds", "share", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for op, kernel, count, seconds, _, _ in sorted(rows, key=lambda row: -row[3]):
        table.add_row(op, kernel, str(count), f"{seconds:.4f}", f"{seconds / total:.1%}" if total else "")
    return table


def _tail(model: Model, result: PrefillResult) -> str:
    """The last characters of the prompt, so that it can be seen what the next tokens follow."""
    tokens = model.tokenizer
    last = [i for i in result.tokens[-TAIL:].tolist() if i < tokens.n_vocab]
    text = tokens.decode(last, skip_special=False)
    return text if len(text) <= TAIL and len(last) == len(result.tokens) else "…" + text[-TAIL:]


def _report(model: Model, result: PrefillResult) -> dict[str, Any]:
    assert result.logits is not None
    last = result.logits.reshape(-1, result.logits.shape[-1])[-1]
    shares = sampling.probabilities(last)
    next_tokens = []
    for id in sampling.top(last, TOP).tolist():
        text = model.tokenizer.decode([id], skip_special=False) if id < model.tokenizer.n_vocab else ""
        next_tokens.append({"id": id, "text": text, "logit": float(last[id]), "probability": float(shares[id])})
    return {
        "model": str(model.path),
        "tokens": result.tokens.tolist(),
        "position": result.session.position,
        "stats": result.stats,
        "next": next_tokens,
        "config": result.config.to_json(),
        "effective": result.effective,
        "plan": [{"line": line, "bytes": count} for line, count in model.plan],
    }


def _text(report: dict[str, Any], tail: str) -> str:
    """The report for people; tail: the end of the prompt."""
    stats = report["stats"]
    lines = [
        f"tokens   {len(report['tokens'])}",
        f"time     {stats['seconds']:.3f} s, {stats['tokens_per_second']:.1f} tok/s",
        f"read     {size(stats['bytes_read'])}",
        f"experts  {stats['resident']} resident, {stats['ahead']} read ahead, {stats['missed']} missed",
        f"next     after {tail!r}",
    ]
    lines += [f"  {_percent(t['probability'])} %  {t['id']:6d}  {t['text']!r}" for t in report["next"]]
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:5.1f}" if share >= 0.0005 else " <0.1"


def _plain(value: Any) -> Any:
    """numpy values for JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
