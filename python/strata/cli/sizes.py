"""Sizes as they are typed: 24G, 500M, 1.5GB (powers of ten, as strata prints them)."""

from __future__ import annotations

import re

import click

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def byte_size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Callback of an option that is a number of bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip(), re.IGNORECASE)
    count = int(float(match[1]) * UNITS[match[2].lower()]) if match else 0
    if count <= 0:
        raise click.BadParameter(f"{text!r} is no size; write it as 24G, 500M or 1.5GB.")
    return count
