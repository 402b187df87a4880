"""A small stand-in for the engine of strata._core: the same interface, logits that depend on the tokens alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from strata.errors import InputError, ModelFormatError

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
import gguf_io


class GgufFile:
    def __init__(self, path):
        if not os.path.isfile(path):
            raise ModelFormatError(f"{path}: cannot be opened: No such file or directory")
        try:
            self._file = gguf_io.GGUF(path)
        except gguf_io.GGUFError as e:
            raise ModelFormatError(f"{path}: {e}") from None

    def keys(self):
        return list(self._file.kv)

    def value(self, key):
        return self._file.kv[key]


class Session:
    def __init__(self):
        self.state, self.position, self.closed = 1, 0, False

    def close(self):
        self.closed = True


class Engine:
    def __init__(self, path, config):
        file = GgufFile(path)
        keys = {"n_layer": "block_count", "hidden": "embedding_length", "context_length": "context_length"}
        self.info = {name: file.value(f"qwen4exp.{key}") for name, key in keys.items()}
        self.info["n_vocab"] = len(file.value("tokenizer.ggml.tokens"))
        self.warnings = []
        self.effective = {
            "threads": config["threads"] or 1,
            "arena_slots": config["arena_slots"] or 16,
            "arena_bytes": (config["arena_slots"] or 16) * 1000,
            "kv_type": config["kv_type"],
            "activations": config["activations"],
            "context": config["context"] or self.info["context_length"],
            "prompt_chunk": config["prompt_chunk"],
        }
        self.plan = [("resident weights", 3_000_000), ("arena", 16_000)]
        self.closed = False

    def session(self):
        return Session()

    def prefill(self, session, tokens, logits, progress, taps):
        if self.closed or session.closed:
            raise InputError("closed")
        assert tokens.dtype == np.int32 and tokens.ndim == 1 and len(tokens) > 0
        start = time.perf_counter()
        n_layer, chunk = self.info["n_layer"], self.effective["prompt_chunk"]
        n_chunk = -(-len(tokens) // chunk)
        for layer in range(n_layer):
            for c in range(n_chunk):
                if progress is not None:
                    progress(
                        {
                            "layer": layer,
                            "n_layer": n_layer,
                            "chunk": c,
                            "n_chunk": n_chunk,
                            "tokens_done": 0,
                            "tokens": len(tokens),
                            "bytes_read": 1000 * (layer + 1),
                            "seconds": time.perf_counter() - start,
                            "hits": layer,
                            "missed": 1,
                        }
                    )
        state, rows = session.state, []
        for token in tokens.tolist():
            state = (state * 6364136223846793005 + token + 1) % 2**64
            if logits == "all":
                rows.append(self._logits(state))
        session.state, session.position = state, session.position + len(tokens)
        values = {"last": lambda: self._logits(state), "all": lambda: np.stack(rows), "none": lambda: None}[logits]()
        seconds = time.perf_counter() - start
        stats = {
            "tokens": len(tokens),
            "seconds": seconds,
            "tokens_per_second": len(tokens) / seconds,
            "bytes_read": 1000 * n_layer,
            "lookups": 4 * n_layer,
            "hits": 2 * n_layer,
            "ahead": n_layer,
            "missed": n_layer,
            "layers": [],
        }
        return values, stats

    def _logits(self, state):
        return np.random.default_rng(state).standard_normal(self.info["n_vocab"]).astype(np.float32)

    def close(self):
        self.closed = True
