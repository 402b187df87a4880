"""strata-ab: comparison of builds or settings, and merging of its reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from strata.cli.prompt import parse_ids

EPILOG = """\b
Examples:
  strata-ab base patched --tokens 256 --pairs 2 --json laptop.json
  strata-ab patched IO_THREADS=8 wide:IO_THREADS=16,PROMPT_CHUNK=2048 --model model.gguf
  strata-ab git=v0.1 patched --dump --html report.html
  strata-ab report laptop.json     (shows saved comparisons, of several machines side by side)

\b
Exit codes: 0 done; 1 an error; 2 wrong usage; 3 bits differ (dumps or logits); 130 interrupted.
"""

REPORT_EPILOG = """\b
Examples:
  strata-ab report laptop.json
  strata-ab report laptop.json desktop.json --markdown both.md
"""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EXIT_DIFFER = 3
WIDTH = 120
_OUT = click.Path(dir_okay=False, path_type=Path)


def _outputs(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--json", "json_out", type=_OUT, help="Write all runs and values to this file."),
            click.option("--markdown", "markdown_out", type=_OUT, help="Write a report for a pull request."),
            click.option("--html", "html_out", type=_OUT, help="Write a page with plots."),
        ]
    ):
        command = option(command)
    return command


@click.command("strata-ab", epilog=EPILOG, context_settings=CONTEXT)
@click.argument("arms", nargs=-1, required=True)
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Default: the demo model.")
@click.option(
    "--prompt", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File with the prompt's text."
)
@click.option(
    "--prompt-ids", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File of token ids instead."
)
@click.option("--tokens", type=click.IntRange(min=1), help="Length of the prompt; a shorter text is repeated.")
@click.option("--decode", type=click.IntRange(min=0), default=0, show_default=True, help="Steps of one forced token.")
@click.option("--pairs", type=click.IntRange(min=1), help="At most so many pairs.")
@click.option("--chunk", type=click.IntRange(min=1), help="PROMPT_CHUNK of all arms.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of all arms; repeatable.")
@click.option("--metric", default="prefill_ms", show_default=True, help="What the verdict is about.")
@click.option("--tolerance", type=float, help="Stop when this near to equality, e.g. 0.02.")
@click.option("--max-minutes", type=float, help="Stop after this time; demo model: 4.")
@click.option(
    "--cache",
    type=click.Choice(["auto", "drop", "model", "keep"]),
    default="auto",
    show_default=True,
    help="Of the page cache, before each run.",
)
@click.option("--cooldown", type=float, help="Seconds between two runs.")
@click.option("--wait", type=float, help="Seconds to wait for a gate (busy, memory, heat).")
@click.option("--max-wait", type=float, help="Seconds to wait for gates in all; then it goes on, and says so.")
@click.option("--strict", is_flag=True, help="Give up when the machine does not become quiet.")
@click.option("--force", is_flag=True, help="Measure even on battery power or with too little memory.")
@click.option("--dump", is_flag=True, help="Dump every layer once per arm, and compare bit by bit.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@_outputs
def compare_command(
    arms: tuple[str, ...],
    settings: tuple[str, ...],
    chunk: int | None,
    prompt: Path | None,
    prompt_ids: Path | None,
    json_out: Path | None,
    markdown_out: Path | None,
    html_out: Path | None,
    quiet: bool,
    model: Path | None,
    **options: Any,
) -> int:
    """Compares ARMS in interleaved pairs of fresh processes on a cold cache: faster? the same bits?

    An arm is a preset (base, patched), a .toml file of settings, KEY=VALUE,..., or another build (python=PATH,
    wheel=FILE, git=REVISION), with NAME: before it for a name of its own. The first is the base.
    """
    from strata.ab import runner

    if prompt is not None and prompt_ids is not None:
        raise click.UsageError("give one of --prompt and --prompt-ids.")
    knobs: dict[str, str] = {}
    for text in (*settings, *([f"prompt_chunk={chunk}"] if chunk else [])):
        key, sign, value = text.partition("=")
        if not sign or knobs.get(key.lower(), value) != value:
            raise click.UsageError(f"--set takes KEY=VALUE, each key once; here is {text!r}.")
        knobs[key.lower()] = value
    given = {name: value for name, value in options.items() if value is not None}
    if prompt is not None:
        given["prompt"] = prompt.read_bytes().decode("utf-8")
    if prompt_ids is not None:
        given["prompt"] = parse_ids(prompt_ids.read_text("utf-8"), str(prompt_ids))
    console = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def say(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        result = runner.compare(*arms, model=model, knobs=knobs, progress=say, **given)
    _write([result], json_out, markdown_out, html_out)
    differs = any(not d["equal"] for d in result.dumps.values())
    differs |= any(result.logits_equal(arm.name) is False for arm in result.arms[1:])
    return 130 if result.stopped.startswith("interrupted") else EXIT_DIFFER if differs else 0


@click.command("strata-ab report", epilog=REPORT_EPILOG, context_settings=CONTEXT)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_outputs
def report_command(
    files: tuple[Path, ...], json_out: Path | None, markdown_out: Path | None, html_out: Path | None
) -> int:
    """Shows saved comparisons, of several machines beside each other. All figures are worked out from the raw runs."""
    from strata.ab import results

    loaded = []
    for path in files:
        data = json.loads(path.read_text("utf-8"))
        many: list[Any] = data["comparisons"] if isinstance(data, dict) and "comparisons" in data else [data]
        loaded += [results.Comparison.from_json(d, str(path)) for d in many]
    _write(loaded, json_out, markdown_out, html_out)
    return 0


def _write(comparisons: Sequence[Any], json_out: Path | None, markdown_out: Path | None, html_out: Path | None) -> None:
    from strata.ab import report, results

    if json_out is not None:
        if len(comparisons) == 1:
            comparisons[0].save(json_out)
        else:
            merged = {"schema": results.SCHEMA, "comparisons": [c.to_json() for c in comparisons]}
            json_out.write_text(json.dumps(merged, indent=1) + "\n", "utf-8")
    if markdown_out is not None:
        markdown_out.write_text(report.to_markdown(comparisons), "utf-8")
    if html_out is not None:
        html_out.write_text(report.to_html(comparisons), "utf-8")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for c in comparisons:
        console.print(report.to_rich(c))


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line (default sys.argv) and exits the process."""
    from strata.cli import run_guarded

    words = list(sys.argv[1:] if args is None else args)
    if words[:1] == ["report"]:
        sys.exit(run_guarded(report_command, words[1:], "strata-ab report"))
    sys.exit(run_guarded(compare_command, words, "strata-ab"))
