"""strata run: a prompt and its continuation."""

from __future__ import annotations

import time

import click
from rich.console import Console

from strata.api import load
from strata.cli.knobs import KnobCommand, knob_options, show_settings, size
from strata.cli.prompt import prompt_options
from strata.config import Config
from strata.progress import Reporter

EPILOG = """\b
Examples:
  strata run --demo -n 100
  strata run model.gguf -p "The capital of Japan is" -n 20
  cat prompt.txt | strata run model.gguf -f - --temperature 0.7 --top-p 0.95 --seed 1
"""


@click.command("run", cls=KnobCommand, epilog=EPILOG)
@prompt_options
@click.option(
    "-n", "--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="At most so many."
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: always the most likely token.")
@click.option("--top-k", type=int, default=0, show_default=True, help="Draw from the K most likely tokens; 0: all.")
@click.option(
    "--top-p", type=float, default=1.0, show_default=True, help="Draw from those that make up this probability."
)
@click.option("--seed", type=int, help="Makes draws repeatable.")
@click.option("--ignore-eos", is_flag=True, help="Go on after an end token.")
@click.option("-q", "--quiet", is_flag=True, help="No plan, progress or summary on stderr.")
@knob_options
def run_command(
    model: str,
    prompt: str | list[int],
    parse_special: bool,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
    ignore_eos: bool,
    quiet: bool,
    config: Config,
) -> None:
    """Prints a prompt and its continuation by MODEL, token by token, and a line end after it."""
    console = Console(stderr=True, highlight=False, quiet=quiet)
    with load(model, config) as loaded:
        show_settings(loaded, console)
        reporter = Reporter(console)
        start = time.perf_counter()
        generated = 0

        def show(id: int, text: str) -> None:
            nonlocal generated
            if generated == 0:
                # Not before: a prompt that is refused, or progress lines, should not stand in the middle of a text.
                reporter.stop()
                click.echo(prompt if isinstance(prompt, str) else loaded.tokenizer.decode(prompt), nl=False)
            generated += 1
            click.echo(text, nl=False)

        try:
            with reporter:
                result = loaded.generate(
                    prompt,
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed,
                    stop_at_eos=not ignore_eos,
                    on_token=show,
                    progress=reporter,
                    parse_special=parse_special,
                )
        except KeyboardInterrupt:
            if generated:
                click.echo()
            click.echo(f"interrupted after {generated} new tokens in {time.perf_counter() - start:.1f} s.", err=True)
            raise click.exceptions.Exit(130) from None
        click.echo()
        stats, first = result.stats, result.stats["prefill"]
        reason = {"eos": "an end token", "length": "the limit", "context": "the end of the context"}
        console.print(
            f"prompt {first['tokens']} tokens in {first['seconds']:.2f} s, then {stats['tokens']} tokens at "
            f"{stats['tokens_per_second']:.1f} tok/s; read {size(first['bytes_read'])}, then "
            f"{size(stats['bytes_read'])}; stopped at {reason[result.finish_reason]}.",
            soft_wrap=True,
        )
