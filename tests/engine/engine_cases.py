"""Models, prompts and runs that the engine's tests share."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import gguf_io
import numpy as np
import strata
from strata import Config, ConfigError, _core

DATA = Path(__file__).resolve().parent.parent / "data"
ORACLE = [
    "tiny-f32",
    "tiny-f16",
    "tiny-ties",
    "small-q8_0",
    "small-iq2xs-q2_0",
    "small-q4_k",
    "small-iq4_nl",
]
ALL = [*ORACLE, "demo"]
DEMO_LAST_ID = 3070  # 3071 is the demo model's reset token


FULL = os.environ.get("STRATA_TEST_FULL") == "1"


def some(cases: Iterable, n: int) -> list:
    """n of the cases, spread by a fixed seed; all of them with STRATA_TEST_FULL=1 in the environment (hours)."""
    cases = list(cases)
    if FULL or len(cases) <= n:
        return cases
    return random.Random(len(cases)).sample(cases, n)


def path_of(name: str) -> Path:
    return strata.demo_path() if name == "demo" else DATA / "oracle" / f"{name}.gguf"


@cache
def prompts() -> dict[str, list[int]]:
    return json.loads((DATA / "oracle" / "prompts.json").read_text())


def prompt(name: str, n: int) -> np.ndarray:
    """n token ids for a model: those of p300, then random ones, resets among them."""
    reset = 3071 if name == "demo" else 496
    rng = np.random.default_rng(n)
    ids = np.array(prompts()["p300"], np.int32)
    more = rng.integers(0, 490, max(0, n - len(ids))).astype(np.int32)
    more[rng.random(len(more)) < 0.02] = 496
    ids = np.concatenate([ids, more])[:n]
    return np.where(ids == 496, reset, ids).astype(np.int32)


def open_engine(model: str | Path, *, activations: str = "f32", **knobs: object) -> _core.Engine:
    """knobs: those of Config, and the core's own fault_* ones."""
    path = path_of(model) if isinstance(model, str) else model
    faults = {name: knobs.pop(name) for name in list(knobs) if name.startswith("fault_")}
    return _core.Engine(str(path), Config(activations=activations, **knobs).to_core() | faults)


def least_slots(model: str | Path) -> int:
    """The smallest arena that is accepted, as the refusal of a smaller one says."""
    try:
        open_engine(model, arena_slots=1)
    except ConfigError as e:
        least = int(re.search(r"at least (\d+)", e.allowed)[1])
    try:
        open_engine(model, arena_slots=least - 1)
    except ConfigError:
        return least
    raise AssertionError(f"{model}: fewer than {least} slots are taken")


def oracle_function(engine: _core.Engine):
    """The engine as check.py wants it: fn(ids, n_new) -> logits, greedy continuation, intermediates."""

    def call(ids, n_new):
        session = engine.session()
        taps = {}
        logits, _ = engine.prefill(session, np.array(ids, np.int32), "all", None, taps)
        for layer in range(engine.info["n_layer"]):
            try:
                state = session.state(f"L{layer}.S")  # [heads * keys, values]
                taps[f"L{layer}/S"] = state.reshape(-1, state.shape[1], state.shape[1])
            except strata.InputError:  # no delta-net layer
                taps[f"L{layer}/qsa_blocks"] = block_table(taps[f"L{layer}/qsa_blocks"], len(ids))
        new, last = [], logits[-1]
        for _ in range(n_new):
            new.append(int(last.argmax()))
            last, _ = engine.prefill(session, np.array(new[-1:], np.int32))
        return {"logits": logits, "greedy": new, "taps": taps}

    return call


def block_table(rows: np.ndarray, n: int, ratio: int = 4) -> np.ndarray:
    """Rows [count, block numbers ...] -> booleans [T, n / ratio], as the goldens have them."""
    table = np.zeros((len(rows), n // ratio), bool)
    for seen, row in zip(table, rows, strict=True):
        blocks = row[1 : 1 + row[0]]
        assert (np.diff(blocks) > 0).all(), "block numbers rise"
        seen[blocks] = True
    return table


@dataclasses.dataclass(eq=False)
class Outcome:
    """What a run gave: logits [T, vocab], every dump as an array, and the files' bytes."""

    logits: np.ndarray
    arrays: dict[tuple[int, str], np.ndarray]
    files: dict[str, bytes]
    stats: dict

    def differs(self, other: Outcome) -> str:
        """The first thing that is not the same bytes, in the order of a forward pass; "" when nothing is."""
        if self.files.keys() != other.files.keys():
            return f"files {self.files.keys() ^ other.files.keys()}"
        for name in sorted(self.files, key=lambda n: (n[:4], _ORDER.index(n[5:]))):
            if self.files[name] != other.files[name]:
                return name
        return "" if self.logits.tobytes() == other.logits.tobytes() else "logits"

    def prefix_differs(self, whole: Outcome) -> str:
        """The same of this run and the first rows of a longer one."""
        n = len(self.logits)
        for key in sorted(self.arrays, key=lambda k: (k[0], _ORDER.index(k[1]))):
            if self.arrays[key].tobytes() != whole.arrays[key][:n].tobytes():
                return f"L{key[0]}.{key[1]}"
        return "" if self.logits.tobytes() == whole.logits[:n].tobytes() else "logits"


_ORDER = ["mixed", "ids", "wts", "hh", "sgv", "yr", "out", "R_post", "inj"]


def run(model: str | Path, ids: np.ndarray, folder: Path, **knobs: object) -> Outcome:
    """One prefill with dumps. The folder is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    engine = open_engine(model, dump_moe=str(folder), **knobs)
    logits, stats = engine.prefill(engine.session(), ids, "all")
    engine.close()
    dump = strata.dump.open_dump(folder)
    arrays = {key: np.array(file.array) for key, file in dump.items()}
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert len(files) == len(arrays)
    return Outcome(logits, arrays, files, stats)


def rewrite(source: Path, target: Path, kv: dict[str, object] | None = None, tensors: dict | None = None) -> Path:
    """A copy of a model with other metadata values (same kinds) and other tensors: name -> (type, uint8 data)."""
    g = gguf_io.GGUF(str(source))
    out = [(k, g.kinds[k], (kv or {}).get(k, v)) for k, v in g.kv.items()]
    changed = [(t.name, t.shape, *(tensors or {}).get(t.name, (t.type, t.raw))) for t in g.tensors.values()]
    gguf_io.write_gguf(str(target), out, changed)
    return target
