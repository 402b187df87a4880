"""Hooks of mkdocs: pages from outside docs/, and links as they are in the repository.

The documents are written to be read in the repository. A link to another document leads to its page; one to anything
else (a source, a folder, the licence) becomes plain text, as the site has no copy of it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Page of the site -> file of the repository.
OUTSIDE = {
    "index.md": "README.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "tests/oracle/README.md": "tests/oracle/README.md",
    "tests/data/quants/README.md": "tests/data/quants/README.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites the links outside of code blocks."""
    here = page.file.src_uri
    source = OUTSIDE.get(here, f"docs/{here}")
    pages = {f"docs/{uri}": uri for uri in files.src_uris} | {v: k for k, v in OUTSIDE.items()}

    def link(match: re.Match[str]) -> str:
        mark, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        if re.match(r"[a-z]+:", target) or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path not in pages:
            return label
        to = posixpath.relpath(pages[path], posixpath.dirname(here) or ".")
        return f"{mark}[{label}]({to}{anchor})"

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(link, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(link, markdown[at:])])
