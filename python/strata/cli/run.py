"""strata run: a prompt and its continuation."""

from __future__ import annotations

import json
import time

import click
from rich.console import Console

from strata.cli.knobs import KnobCommand, drive_speed, knob_options, open_model, size
from strata.cli.prefill import summary
from strata.cli.prompt import prompt_options
from strata.config import Config
from strata.progress import Reporter
from strata.summary import decode_hint

EPILOG = """\b
Examples:
  strata run --demo -n 100
  strata run model.gguf -p "The capital of Japan is" -n 20
  cat prompt.txt | strata run model.gguf -f - --temperature 0.7 --top-p 0.95 --seed 1
"""


@click.command("run", cls=KnobCommand, epilog=EPILOG, short_help="Print a prompt and its continuation.")
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, no text.")
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
    as_json: bool,
    quiet: bool,
    config: Config,
) -> None:
    """Prints a prompt and its continuation by MODEL, token by token, and a line end after it."""
    console = Console(stderr=True, highlight=False, quiet=quiet)
    with open_model(model, config, console) as loaded:
        reporter = Reporter(console, drive_speed(model))
        start = time.perf_counter()
        generated = 0

        def show(id: int, text: str) -> None:
            nonlocal generated
            if generated == 0:
                # Not before: a prompt that is refused, or progress lines, should not stand in the middle of a text.
                reporter.stop()
                if not as_json:
                    click.echo(prompt if isinstance(prompt, str) else loaded.tokenizer.decode(prompt), nl=False)
            generated += 1
            if not as_json:
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
            if generated and not as_json:
                click.echo()
            click.echo(f"interrupted after {generated} new tokens in {time.perf_counter() - start:.1f} s.", err=True)
            raise click.exceptions.Exit(130) from None
        stats, first = result.stats, result.stats["prefill"]
        cost = summary(loaded, first)
        if as_json:
            report = {
                "model": str(loaded.path),
                "prompt_tokens": first["tokens"],
                "tokens": result.tokens,
                "text": result.text,
                "finish_reason": result.finish_reason,
                "stats": stats,
                "summary": cost.to_json(),
                "config": result.config.to_json(),
                "effective": result.effective,
                "plan": [{"line": line, "bytes": count} for line, count in loaded.plan],
            }
            click.echo(json.dumps(report, ensure_ascii=False))
        else:
            click.echo()
        reason = {"eos": "an end token", "length": "the limit", "context": "the end of the context"}
        share = stats["resident"] / stats["lookups"] if stats["lookups"] else 0.0
        console.print(cost.text(), markup=False, soft_wrap=True)
        hint = decode_hint(stats, result.effective, loaded.info["n_layer"] * loaded.info["n_expert_used"])
        if hint:
            console.print(f"hint     {hint}", soft_wrap=True)
        console.print(
            f"prompt {first['tokens']} tokens in {first['seconds']:.2f} s, then {stats['tokens']} tokens at "
            f"{stats['tokens_per_second']:.1f} tok/s, {share:.0%} of their experts in memory; "
            f"read {size(first['bytes_read'])}, then {size(stats['bytes_read'])}; stopped at "
            f"{reason[result.finish_reason]}.",
            soft_wrap=True,
        )
