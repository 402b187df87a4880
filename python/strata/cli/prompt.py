"""The options that say which model and which prompt, shared by the commands that run one."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from strata.api import demo_path
from strata.errors import InputError

DEMO_PROMPT = "Once upon a time, a clever"
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds MODEL and the prompt's options; the command gets `model` (path), `prompt` (text or ids), `parse_special`."""

    @functools.wraps(command)
    def with_prompt(
        model: str | None,
        demo: bool,
        text: str | None,
        file: str | None,
        tokens: str | None,
        escapes: bool,
        strip_newline: bool,
        literal: bool,
        **arguments: Any,
    ) -> Any:
        if demo == (model is not None):
            raise click.UsageError("give a MODEL, or --demo for the model that comes with strata (not both).")
        given = [n for n, v in (("--prompt", text), ("--file", file), ("--tokens", tokens)) if v is not None]
        if len(given) > 1 or (not given and not demo):
            found = f"; here are {' and '.join(given)}" if given else ""
            raise click.UsageError(f"give one prompt: --prompt, --file or --tokens{found}.")
        if escapes and text is None:
            raise click.UsageError("--escapes is for --prompt; files and stdin are taken as they are.")
        if strip_newline and file is None:
            raise click.UsageError("--strip-newline is for --file.")
        prompt: str | list[int]
        if tokens is not None:
            prompt = parse_ids(read_text(tokens), tokens)
        elif file is not None:
            prompt = read_text(file)
            if strip_newline:
                prompt = re.sub(r"\r?\n\Z", "", prompt)
        else:
            prompt = DEMO_PROMPT if text is None else unescape(text) if escapes else text
        path = str(demo_path()) if model is None else model
        return command(model=path, prompt=prompt, parse_special=not literal, **arguments)

    options: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
        click.argument("model", required=False),
        click.option("--demo", is_flag=True, help="Use the model that comes with strata, and a prompt of its own."),
        click.option("-p", "--prompt", "text", help="The prompt, taken as it is."),
        click.option("-f", "--file", type=_FILE, help="A file with the prompt, every byte of it (UTF-8); - is stdin."),
        click.option("--tokens", type=_FILE, help="A file of token ids, a JSON list or just numbers; - is stdin."),
        click.option("--escapes", is_flag=True, help=r"Replace \n, \t, \\, \xNN, \uNNNN in --prompt. Off by default."),
        click.option("--strip-newline", is_flag=True, help="Drop one line end at the end of --file."),
        click.option("--literal", is_flag=True, help="Take the names of control tokens in the prompt as plain text."),
    ]
    wrapped: Callable[..., Any] = with_prompt
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def unescape(text: str) -> str:
    """Replaces the escapes that --escapes knows; another backslash stays."""

    def replace(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code is None:
            return ESCAPES.get(match[4], match[0])
        try:
            return chr(int(code, 16))
        except (ValueError, OverflowError):
            raise InputError(f"{match[0]} is no Unicode character.") from None

    return ESCAPE.sub(replace, text)


def parse_ids(text: str, name: str) -> list[int]:
    """Token ids from a JSON list, or separated by white space."""
    try:
        ids = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
    except (ValueError, RecursionError) as e:
        raise InputError(f"{name}: not a list of token ids: {e}.") from None
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise InputError(f"{name}: a list of token ids holds whole numbers only.")
    return ids


def read_text(name: str) -> str:
    """The text of a file or of stdin, with no line end changed."""
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise InputError(
            f"{'stdin' if name == '-' else name} is not UTF-8: byte {e.start} is {data[e.start]:#x}."
        ) from None
