"""Table of Engine.profile(): per op and kernel its share of the time and of what the machine can do."""

from __future__ import annotations

from typing import Any


def table(rows: list[tuple[Any, ...]], peak: tuple[float, float, float]) -> str:
    """peak: 1e9 integer and float multiply-adds a second, 1e9 bytes a second."""
    integer, f32, memory = peak
    total = sum(r[3] for r in rows) or 1.0
    lines = [
        f"peak: integer {integer:.0f} GMAC/s, float {f32:.0f} GMAC/s, memory {memory:.1f} GB/s",
        f"{'op':15}{'kernel':32}{'count':>8}{'ms':>10}{'share':>7}{'GMAC/s':>9}{'GB/s':>7}{'of peak':>9}",
    ]
    for op, kernel, count, seconds, macs, bytes_read in sorted(rows, key=lambda r: -r[3]):
        line = f"{op:15}{kernel:32}{count:8}{seconds * 1e3:10.1f}{seconds / total:7.1%}"
        if macs:
            gmac, gbytes = macs / seconds * 1e-9, bytes_read / seconds * 1e-9
            bound = max(gmac / (integer if " int" in kernel else f32), gbytes / memory)
            line += f"{gmac:9.1f}{gbytes:7.1f}{bound:9.0%}"
        lines.append(line)
    lines.append(f"{'sum':55}{total * 1e3:10.1f}")
    return "\n".join(lines)
