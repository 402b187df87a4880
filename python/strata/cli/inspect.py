"""strata inspect: what is in a model file."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  strata inspect model.gguf
  strata inspect model-00001-of-00003.gguf --json
"""


@click.command("inspect", epilog=EPILOG)
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect_command(model: str, as_json: bool) -> None:
    """Shows the architecture, sizes and tensors of MODEL; reads its header only."""
    from strata import inspect

    info = inspect.inspect(model)
    click.echo(inspect.to_json(info) if as_json else inspect.render(info))
