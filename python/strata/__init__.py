"""strata: mixture-of-experts models larger than memory, at the speed of the SSD, with bits you can trust."""

from strata import dump
from strata._core import __version__
from strata.api import GenerateResult, Model, PrefillResult, Session, demo_path, generate, load, prefill
from strata.config import Config, ConfigWarning
from strata.errors import (
    Cancelled,
    ConfigError,
    DumpFormatError,
    InputError,
    ModelFormatError,
    OutOfMemoryPlanError,
    StrataError,
    StreamIOError,
)
from strata.progress import Progress
from strata.tokenizer import StreamDecoder, Tokenizer

__all__ = [
    "Cancelled",
    "Config",
    "ConfigError",
    "ConfigWarning",
    "DumpFormatError",
    "GenerateResult",
    "InputError",
    "Model",
    "ModelFormatError",
    "OutOfMemoryPlanError",
    "PrefillResult",
    "Progress",
    "Session",
    "StrataError",
    "StreamDecoder",
    "StreamIOError",
    "Tokenizer",
    "__version__",
    "demo_path",
    "dump",
    "generate",
    "load",
    "prefill",
]
