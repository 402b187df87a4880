"""Write csrc/quant/tables.inc, the constant tables of the GGUF block formats.

    python tools/make_quant_tables.py            # writes the file
    python tools/make_quant_tables.py --check    # exit status 1 when the committed file differs

The data are facts of the formats. Source of the grids and of the two value tables: the `gguf` Python package (MIT
licence), which keeps each grid as hexadecimal text of packed codes, 2 bits (4 bits for the grids with more than four
distinct values) each, lowest bits first, and a list of the numbers that the codes stand for. The sign and scale tables
follow from their definitions:

    grid_iq2xxs  uint8[256][8]    grid_iq2xs  uint8[512][8]    grid_iq2s  uint8[1024][8]    magnitudes of 8 values
    grid_iq3xxs  uint8[256][4]    grid_iq3s   uint8[512][4]                                 magnitudes of 4 values
    grid_iq1     int8[2048][8]    -1, 0, 1 (IQ1_S and IQ1_M)
    ksigns       uint8[128]       seven stored sign bits and an eighth that makes the number of ones even
    kvalues_iq4  int8[16]         levels of IQ4_NL and IQ4_XS
    kvalues_fp4  int8[16]         twice the E2M1 values (MXFP4, NVFP4; their scales are halved to match)
    ue4m3_half   uint32[256]      float32 bits of half an unsigned E4M3 number; bit 7 is ignored, except that only the
                                  bytes 0x00, 0x80 and 0x7F give zero (0xFF gives 240)

Needs `gguf` and `numpy`; building strata needs neither.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "csrc" / "quant" / "tables.inc"

HEADER = """\
// Constant tables of the block formats: made by tools/make_quant_tables.py, which says what each one is; not edited
// by hand. The grids come from the gguf Python package (MIT licence). Included inside a namespace by quant/tables.h.
"""


def grid(cls: type, dtype: type) -> np.ndarray:
    """Unpack the grid that a quantisation class of the gguf package holds: [entries, values per entry]."""
    raw = np.frombuffer(bytes.fromhex(bytes(cls.grid_hex).decode("ascii")), np.uint8)
    values = np.array(cls.grid_map, dtype)
    entries, width = cls.grid_shape
    bits = 2 if len(values) <= 4 else 4
    codes = np.stack([(raw >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)], axis=1).reshape(-1)
    if codes.size != entries * width or codes.max() >= len(values):
        raise SystemExit(f"unexpected packing of the grid of {cls.__name__}")
    return values[codes].reshape(entries, width)


def ksigns() -> np.ndarray:
    low = np.arange(128, dtype=np.uint8)
    parity = np.array([bin(int(i)).count("1") & 1 for i in low], np.uint8)
    return low | parity << 7


def ue4m3_half() -> np.ndarray:
    b = np.arange(256)
    exponent, fraction = b >> 3 & 15, b & 7
    value = np.where(exponent == 0, np.ldexp(fraction / 1.0, -10), np.ldexp(1 + fraction / 8, exponent - 8))
    value[[0x00, 0x7F]] = 0
    return value.astype(np.float32).view(np.uint32)


def tables() -> dict[str, np.ndarray]:
    from gguf import quants as q

    t = {
        "grid_iq2xxs": grid(q.IQ2_XXS, np.uint8),
        "grid_iq2xs": grid(q.IQ2_XS, np.uint8),
        "grid_iq2s": grid(q.IQ2_S, np.uint8),
        "grid_iq3xxs": grid(q.IQ3_XXS, np.uint8),
        "grid_iq3s": grid(q.IQ3_S, np.uint8),
        "grid_iq1": grid(q.IQ1_S, np.int8),
        "ksigns": ksigns(),
        "kvalues_iq4": np.array(q.IQ4_NL.kvalues, np.int8),
        "kvalues_fp4": np.array(q.MXFP4.kvalues, np.int8),
        "ue4m3_half": ue4m3_half(),
    }
    if not np.array_equal(t["ksigns"], np.frombuffer(bytes(q.IQ2_XXS.ksigns), np.uint8)):
        raise SystemExit("the package's sign table differs from its definition")
    return t


def text(t: dict[str, np.ndarray]) -> str:
    """The file: rows of at most 120 columns, grid entries in braces."""
    lines = [HEADER]
    for name, a in t.items():
        dims = "".join(f"[{n}]" for n in a.shape)
        if a.ndim == 2:
            items = ["{" + ",".join(str(int(v)) for v in row) + "}" for row in a]
        elif a.dtype == np.uint32:
            items = [f"0x{int(v):08x}" for v in a]
        else:
            items = [str(int(v)) for v in a]
        lines.append(f"alignas(64) inline constexpr {a.dtype}_t {name}{dims} = {{")
        row = " "
        for item in items:
            if len(row) + len(item) + 2 > 120:
                lines.append(row)
                row = " "
            row += f" {item},"
        lines += [row, "};", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    want = text(tables())
    if parser.parse_args().check:
        same = OUT.read_text() == want
        print(f"{OUT.name}: {'up to date' if same else 'differs'}")
        return 0 if same else 1
    OUT.write_text(want)
    return 0


if __name__ == "__main__":
    sys.exit(main())
