"""The delta rule's kernel for one token against the one for many: the same bits, state and output."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_cases import ISAS
from quant_cases import assert_same_bits
from strata import _core


@pytest.mark.parametrize("isa", ISAS)
def test_a_token_is_a_scan_of_one(isa):
    rng = np.random.default_rng(5)
    dim = 128
    state = rng.standard_normal((dim, dim)).astype(np.float32)
    q, k, v = (rng.standard_normal((1, dim)).astype(np.float32) for _ in range(3))
    decay, beta = np.float32([0.93]), np.float32([0.4])
    o, after = _core.delta_step(isa, state, q, k, v, decay, beta)
    for c in range(0, dim, 32):
        columns = slice(c, c + 32)
        part = np.ascontiguousarray(state[:, columns])
        want_o, want = _core.delta_scan("portable", part, q, k, np.ascontiguousarray(v[:, columns]), decay, beta)
        assert_same_bits(o[:, columns], want_o, f"{isa} outputs {c}")
        assert_same_bits(after[:, columns], want, f"{isa} state {c}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("columns", [32, 31, 17, 16, 3])
def test_scan_of_many_tokens(isa, columns):
    """One call of seven tokens, seven calls of one."""
    rng = np.random.default_rng(columns)
    dim, tokens = 48, 7
    state = rng.standard_normal((dim, columns)).astype(np.float32)
    q, k = (rng.standard_normal((tokens, dim)).astype(np.float32) / 7 for _ in range(2))
    v = rng.standard_normal((tokens, columns)).astype(np.float32)
    decay, beta = rng.random(tokens).astype(np.float32), rng.random(tokens).astype(np.float32)
    o, after = _core.delta_scan(isa, state, q, k, v, decay, beta)
    for t in range(tokens):
        one = slice(t, t + 1)
        want, state = _core.delta_scan("portable", state, q[one], k[one], v[one], decay[one], beta[one])
        assert_same_bits(o[one], want, f"{isa} token {t}")
    assert_same_bits(after, state, isa)
