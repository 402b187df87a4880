"""strata inspect: what is in a model file."""

from __future__ import annotations

import click
from rich.console import Console

EPILOG = """\b
Examples:
  strata inspect model.gguf
  strata inspect model-00001-of-00003.gguf --json
"""

WIDTH = 120  # of the tables when stdout is no terminal


@click.command("inspect", epilog=EPILOG, short_help="Show what is in a model file.")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect_command(model: str, as_json: bool) -> None:
    """Shows the architecture, sizes and tensors of MODEL; reads its header only."""
    from strata import inspect

    info = inspect.inspect(model)
    if as_json:
        click.echo(inspect.to_json(info))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = WIDTH
        console.print(inspect.render(info))
