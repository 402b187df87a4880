"""Fixtures of the kernels' tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "oracle"))
sys.path.insert(0, str(TESTS / "quant"))
