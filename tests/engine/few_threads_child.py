"""Loads MODEL with READERS readers, and multiplies with THREADS threads, with so little address space left that the
system cannot start them all. Prints the logits, the warnings and the product as JSON."""

import json
import resource
import sys

import numpy as np
import strata
from strata import _core

path, threads, readers, spare = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
weights = _core.quantize("Q8_0", np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32))
x = np.random.default_rng(2).normal(size=(5, 256)).astype(np.float32)
number = next(n for name, n, _, _ in _core.quant_types() if name == "Q8_0")
with open("/proc/self/status") as file:
    used = 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmSize"))
if spare:
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, used + spare))
with strata.load(path, threads=2, io_threads=readers, context=64, popularity="off") as model:
    result = model.prefill(np.arange(1, 20, dtype=np.int32))
    out = {"logits": result.logits.tobytes().hex(), "warnings": model.warnings}
try:
    product = (
        _core.Product(number, weights.reshape(-1), 0, 64, 256, "auto", threads, False).run(x, "auto").tobytes().hex()
    )
except MemoryError:  # the threads that did start took all of it
    product = "no memory"
print(json.dumps(out | {"product": product}))
