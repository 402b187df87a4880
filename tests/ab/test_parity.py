"""The parity checks themselves: they pass on the engine, and they fail when something is wrong."""

import json
import sys

import numpy as np
import pytest
from strata import _core, parity
from strata.cli import main
from strata.errors import InputError


def test_reference_route_by_hand():
    """Equal scores: lower index first. Weights of two chosen with logits 1 and 0: e / (e + 1), 1 / (e + 1)."""
    logits = np.array([[0, 1, 0, 1, -5], [2, 2, 2, 2, 2], [np.nan, 1, 2, 3, 4]], np.float32)
    ids, weights, _ = parity.reference_route(logits, 3)
    assert ids.tolist() == [[1, 3, 0], [0, 1, 2], [0, 1, 2]]
    assert weights[1] == pytest.approx([1 / 3] * 3) and np.isnan(weights[2]).all()
    ids, weights, _ = parity.reference_route(np.array([[1, 0, -9]], np.float32), 2)
    assert weights[0] == pytest.approx([np.e / (np.e + 1), 1 / (np.e + 1)], rel=1e-6)


def test_bonus_chooses_but_does_not_weigh():
    """Logits 0, 0.5, 0.6 with a bonus of 0.85 on expert 0: 0 goes first, the weights are those of 0 and 0.6."""
    logits, resident = np.array([[0, 0.5, 0.6]], np.float32), np.array([True, False, False])
    e = np.exp(np.float32(0.6))
    for ids, weights in (
        parity.reference_route(logits, 2, resident, 0.85)[:2],
        _core.route(logits, 2, "auto", resident, 0.85),
    ):
        assert ids.tolist() == [[0, 2]] and weights[0] == pytest.approx([1 / (1 + e), e / (1 + e)], rel=1e-6)


def test_router_passes_everywhere():
    cases = parity.route_parity(rows=24)
    assert len(cases) == 2 * len(parity.logit_families(8, 1)) * len(_core.cpu_isas()) * 2
    assert all(c.passed for c in cases), [c for c in cases if not c.passed]
    assert {(c.experts, c.bonus) for c in cases} == {(512, 0.0), (256, 0.85)}


def test_a_wrong_router_is_found(monkeypatch):
    """A router that takes the higher index of equal scores; one that forgets the bonus; one with wrong weights."""
    real = _core.route

    def upside_down(logits, k, *rest):
        ids, weights = real(np.ascontiguousarray(logits[:, ::-1]), k, *rest)
        return (logits.shape[1] - 1 - ids).astype(np.int32), weights

    monkeypatch.setattr(_core, "route", upside_down)
    failed = {c.logits for c in parity.route_parity(rows=8, sizes=[(64, 0.0)]) if not c.passed}
    assert {"ties of whole numbers", "all equal"} <= failed and "random" not in failed

    monkeypatch.setattr(_core, "route", lambda logits, k, isa, resident, bonus: real(logits, k, isa, None, 0.0))
    assert any(c.mismatches for c in parity.route_parity(rows=8, sizes=[(64, 0.85)]))

    def heavy(*a):
        ids, weights = real(*a)
        return ids, weights * np.float32(1.0001)

    monkeypatch.setattr(_core, "route", heavy)
    assert not any(c.passed for c in parity.route_parity(rows=8, sizes=[(64, 0.0)]) if c.logits == "random")


def test_other_bits_between_instruction_sets_are_found(monkeypatch):
    if len(_core.cpu_isas()) < 2:
        pytest.skip("one instruction set only")
    real, last = _core.vector_kernel, _core.cpu_isas()[-1]

    def off_by_one(name, isa, *a, **b):
        out = real(name, isa, *a, **b)
        return np.nextafter(out, np.float32(np.inf)) if isa == last and name == "swiglu" else out

    monkeypatch.setattr(_core, "vector_kernel", off_by_one)
    results = parity.kernel_parity(["swiglu"])
    assert [r.isa for r in results if not r.passed] == [last] and all(r.worst <= 1 for r in results)


def test_kernels_pass_everywhere():
    failed = [r for r in parity.kernel_parity() if not r.passed]
    assert not failed, failed


def test_a_wrong_kernel_is_found(monkeypatch):
    real = _core.vector_kernel
    monkeypatch.setattr(_core, "vector_kernel", lambda name, *a, **b: real(name, *a, **b) * np.float32(1 + 1e-5))
    assert not any(r.passed for r in parity.kernel_parity(["sigmoid_gate"]))
    monkeypatch.setattr(_core, "vector_kernel", lambda name, *a, **b: real(name, *a, **b) * np.float32(np.nan))
    assert all(r.worst == np.inf for r in parity.kernel_parity(["scale"]))


def test_unknown_kernel():
    with pytest.raises(InputError, match="rms_norm"):
        parity.kernel_parity(["nothing"])


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    return caught.value.code, capsys.readouterr().out


def test_commands(capsys, monkeypatch):
    code, out = run(capsys, "route-parity", "--rows", 4, "--isa", "portable")
    assert code == 0 and "PASS: 0 mismatches" in out
    code, out = run(capsys, "kernel-parity", "scale", "max", "--json")
    assert code == 0 and json.loads(out)["passed"]
    assert "rms_norm" in run(capsys, "kernel-parity", "--list")[1]
    real = _core.route
    monkeypatch.setattr(_core, "route", lambda *a: (real(*a)[0][:, ::-1], real(*a)[1]))
    code, out = run(capsys, "route-parity", "--rows", 4)
    assert code == 1 and "FAIL" in out


def test_two_builds_of_a_kernel(capsys):
    """This build against itself: the same bits."""
    result = parity.kernel_ab("scale", sys.executable, pairs=2, environment=dict(__import__("os").environ))
    assert result.different == [] and len(result.old_seconds) == len(result.new_seconds) == 2
