"""The errors strata raises. All derive from StrataError; each carries the facts of its message as attributes."""

from __future__ import annotations

from typing import Any


class StrataError(Exception):
    """Base of every error raised on purpose by strata."""


class ModelFormatError(StrataError):
    """A model file is damaged, incomplete, or not of a kind strata reads.

    Attributes: file (str), offset (int | None, byte offset of the faulty entry).
    """

    file: str = ""
    offset: int | None = None


class DumpFormatError(StrataError):
    """A file of a dump is damaged, incomplete or none. Attribute: file (str)."""

    file: str = ""


class ConfigError(StrataError, ValueError):
    """A knob has a value that is not allowed. Attributes: knob, value, allowed (all str)."""

    knob: str = ""
    value: str = ""
    allowed: str = ""


class InputError(StrataError, ValueError):
    """The arguments of a call cannot be served: bad token ids, a prompt longer than the context, a closed session."""


class StreamIOError(StrataError, OSError):
    """A read failed or the file ended early. The session stays usable.

    Attributes: file, offset (bytes), errno (0 when the file ended early), layer and expert (-1 when the bytes
    belong to no expert).
    """

    file: str = ""
    offset: int = 0
    layer: int = -1
    expert: int = -1


class OutOfMemoryPlanError(StrataError, MemoryError):
    """The memory plan does not fit.

    Attributes: plan (the printed table), needed and available (bytes), settings (up to three changes, knob -> value,
    of which each alone would make it fit).
    """

    plan: str = ""
    needed: int = 0
    available: int = 0
    settings: tuple[dict[str, Any], ...] = ()


class DiskSpaceError(StrataError, OSError):
    """A file to be written does not fit on its drive. Attributes: file (str), needed and free (bytes)."""

    file: str = ""
    needed: int = 0
    free: int = 0


class Cancelled(StrataError):
    """The call was stopped by its caller. The session is where the sweep began."""
