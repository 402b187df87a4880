"""strata dump-compare: are two dumps the same bits, and if not, where do they begin to differ?"""

from __future__ import annotations

import json
from pathlib import Path

import click

EPILOG = """\b
Examples:
  STRATA_DUMP_MOE=a strata prefill --demo
  STRATA_DUMP_MOE=b strata prefill --demo --isa portable
  strata dump-compare a b

\b
Exit codes: 0 equal; 1 values differ; 2 a file is missing, left over, cut
short or of another shape.
"""

_FOLDER = click.Path(path_type=Path)


@click.command("dump-compare", epilog=EPILOG, short_help="Compare two dumps bit by bit.")
@click.argument("a", type=_FOLDER)
@click.argument("b", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def dump_compare_command(a: Path, b: Path, as_json: bool) -> int:
    """Compares the dump folders A and B bit by bit: the first difference by layer, and how many in each layer."""
    from strata.ab import dumps

    result = dumps.compare(a, b)
    click.echo(json.dumps(result.to_json(), indent=1) if as_json else result.text())
    return result.exit_code
