"""strata-ab: comparison of two builds or settings. The command comes with a later version."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Says so, and exits 2."""
    print(
        "strata-ab comes with a later version of strata; until then, compare with: strata prefill --json",
        file=sys.stderr,
    )
    sys.exit(2)
