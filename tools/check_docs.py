#!/usr/bin/env python3
"""Checks the Markdown files: every relative link leads to a file and, with #, to a heading of it; and every docs/*.md that
the sources name is there. Links to other hosts are not followed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIP = {"build", "dist", "node_modules"}
SOURCES = {".cpp", ".h", ".inc", ".py", ".pyi", ".cmake", ".toml", ".txt", ".yml"}
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
NAMED = re.compile(r"\bdocs/[\w-]+\.md\b")


def files(suffixes: set[str]) -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        inside = path.relative_to(ROOT).parts
        if path.suffix in suffixes and path.is_file() and not any(p in SKIP or p.startswith((".venv", ".git/")) for p in inside):
            yield path


def prose(text: str) -> str:
    """The text without code: fenced blocks and `spans` hold no links and no headings."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(`+).+?\1", lambda m: re.sub(r"[\[\]()]", "", m[0]), text)


def anchors(text: str) -> set[str]:
    """The anchors GitHub gives to headings."""
    found: set[str] = set()
    for title in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", prose(text), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def main() -> int:
    faults, count = [], 0
    for path in files({".md"}):
        here = path.relative_to(ROOT)
        for target in LINK.findall(prose(path.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            name, _, anchor = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            if not to.exists() or ROOT not in [to, *to.parents]:
                faults.append(f"{here}: {target}: no such file")
            elif anchor and anchor not in anchors(to.read_text(encoding="utf-8")):
                faults.append(f"{here}: {target}: no such heading")
    for path in files(SOURCES | {".md"}):
        for name in sorted(set(NAMED.findall(path.read_text(encoding="utf-8")))):
            count += 1
            if not (ROOT / name).exists():
                faults.append(f"{path.relative_to(ROOT)}: {name}: no such file")
    print("\n".join(faults) or f"{count} links lead somewhere")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
