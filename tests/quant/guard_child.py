"""Run by test_guard.py in a process of its own: decodes rows that lie against an unreadable page.

python guard_child.py decode          # every type, both ends, rows of 1, 2, 3, 5 and 7 blocks
python guard_child.py read END BYTE   # one load at an offset from the start of 34 guarded bytes
"""

from __future__ import annotations

import ctypes
import sys

import conftest  # noqa: F401  (makes the reference importable)
from quant_cases import NAMES, assert_same_bits, goldens
from quants.guard import guarded


def decode() -> None:
    from strata import _core

    rows = 0
    for name in NAMES:
        blocks, values = goldens()[f"{name}.blocks"], goldens()[f"{name}.values"]
        for count in (1, 2, 3, 5, 7):
            raw, want = blocks[-count:].tobytes(), values[-count:]
            for side in ("end", "start"):
                with guarded(raw, side) as view:
                    assert_same_bits(_core.dequantize(name, view), want, f"{name} {side} {count}")
                    del view
                rows += 1
    print(rows, "rows")


def read(side: str, offset: int) -> None:
    with guarded(bytes(range(34)), side) as view:
        ctypes.string_at(view.ctypes.data + offset, 1)


if __name__ == "__main__":
    decode() if sys.argv[1] == "decode" else read(sys.argv[2], int(sys.argv[3]))
