"""Opens every file of a folder, all of them bad, with little memory to spare. Prints the number of files refused."""

import os
import resource
import sys

from strata._core import GgufFile, model_info
from strata.errors import ModelFormatError

SPARE = 96 << 20


def main() -> None:
    folder = sys.argv[1]
    sanitized = "asan" in os.environ.get("LD_PRELOAD", "")  # reserves address space by the terabyte
    if os.path.exists("/proc/self/statm") and not sanitized:
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, used + SPARE))
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    refused = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        try:
            GgufFile(path)
            model_info(path)
        except ModelFormatError:
            refused += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    assert sanitized or grown < SPARE, f"grew by {grown} bytes"
    print(refused, grown)


if __name__ == "__main__":
    main()
