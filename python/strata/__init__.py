"""strata: mixture-of-experts models larger than memory, at the speed of the SSD, with bits you can trust."""

from strata._core import __version__

__all__ = ["__version__"]
