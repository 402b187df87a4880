#!/usr/bin/env python3
"""Records a session in tmux as docs/session.svg: the picture in the README. Needs tmux.

A prefill of the demo model with a small arena, Ctrl-C, a run, and an error of each kind, typed into a real terminal.
The last screens are taken with their colours (tmux capture-pane -e) and drawn by rich.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import strata
from rich.console import Console
from rich.text import Text
from strata import gguf_write

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "session.svg"
WIDTH, HEIGHT = 112, 300  # of the terminal: high enough for all of it
SESSION = "strata-recording"
PROMPT = "$ "
SECONDS = 60  # that a command may take

# What is typed, and what must be on the screen before Ctrl-C is pressed ("": it is not).
TYPED = [
    ("strata prefill --demo -f story.txt --arena-slots 96", ""),
    ("strata prefill --demo -f story.txt --arena-slots 96 --isa portable --prompt-chunk 64", "layer 3/8"),
    ("strata run --demo -p 'Question: What is the capital of France?\\nAnswer:' --escapes -n 12 -q", ""),
    ("strata inspect half.gguf", ""),
    ("strata inspect page.gguf", ""),
    ("strata inspect set-00001-of-00003.gguf", ""),
    ("strata prefill --demo --ram-gb 0.08 -q", ""),
    ("STRATA_THRAEDS=2 strata prefill --demo --arena-slots 96 --arena-gb 1 -q", ""),
    ("strata prefill --demo --threads many", ""),
]


def tmux(*args: str) -> str:
    return subprocess.run(["tmux", "-L", SESSION, *args], check=True, capture_output=True, text=True).stdout


def screen() -> str:
    return tmux("capture-pane", "-p", "-e", "-t", SESSION)


def wait(ready: str, count: int) -> None:
    """Until the screen shows the text so many times."""
    end = time.monotonic() + SECONDS
    while screen().count(ready) < count:
        if time.monotonic() > end:
            sys.exit(f"{ready!r} did not come:\n{screen()}")
        time.sleep(0.02)


def files(folder: Path) -> None:
    """What the commands read: a text, half a model, a web page, a set without its second part."""
    command = folder / "bin" / "strata"
    command.parent.mkdir()
    package = Path(strata.__file__).parents[1]
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{package}" exec "{sys.executable}" -m strata "$@"\n')
    command.chmod(0o755)
    whole = (ROOT / "python/strata/data/demo.gguf").read_bytes()
    text = ROOT / "tests" / "data" / "demo" / "heldout.txt"
    (folder / "story.txt").write_text(text.read_text("utf-8"), "utf-8")
    (folder / "half.gguf").write_bytes(whole[: len(whole) // 2])
    (folder / "page.gguf").write_text("<!DOCTYPE html><html><title>404 Not Found</title></html>")
    for part in (0, 2):
        keys = [("general.architecture", "str", "qwen4exp"), ("split.no", "u16", part), ("split.count", "u16", 3)]
        tensor = gguf_write.Tensor(f"part{part}.weight", (32,), "F32")
        data = gguf_write.header(keys, [tensor]) + bytes(tensor.bytes + gguf_write.ALIGNMENT)
        (folder / f"set-{part + 1:05d}-of-00003.gguf").write_bytes(data)


def draw(lines: list[str]) -> None:
    """The picture, with the terminal's colours."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(Text.from_ansi(line))
        picture = console.export_svg(title="strata", unique_id="strata")
    # Without the fonts that rich would have fetched from the network: any of fixed width will do.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n?", "", picture, flags=re.DOTALL), "utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files(folder)
        tmux("new-session", "-d", "-s", SESSION, "-x", str(WIDTH), "-y", str(HEIGHT), "-c", name, "bash --norc")
        try:
            shown: list[str] = []
            tmux("send-keys", "-t", SESSION, f"PATH=$PWD/bin:$PATH; PS1='{PROMPT}'; unset HISTFILE; clear", "Enter")
            time.sleep(0.5)
            for number, (command, until) in enumerate(TYPED):
                tmux("send-keys", "-t", SESSION, "-l", command)
                tmux("send-keys", "-t", SESSION, "Enter")
                if until:
                    wait(until, 1)
                    bar = next(line for line in screen().splitlines() if until in line)
                    tmux("send-keys", "-t", SESSION, "C-c")
                wait(f"\n{PROMPT.strip()}", number + 1)
                time.sleep(0.2)
            shown = screen().rstrip().splitlines()[:-1]
            # The bar goes away when it is done; here it stays, above the line that Ctrl-C left.
            at = next(i for i, line in enumerate(shown) if "interrupted in layer" in line)
            draw([*shown[:at], bar, *shown[at:]])
        finally:
            tmux("kill-server")
    print(f"{PICTURE.relative_to(ROOT)}: {len(shown)} lines")


if __name__ == "__main__":
    main()
