"""bench/peer.py without a peer: its figures on values worked out by hand, and the order of turns."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def peer():
    folder = str(Path(__file__).parents[2] / "bench")
    sys.path.insert(0, folder)
    try:
        import peer
    finally:
        sys.path.remove(folder)
    return peer


def test_agreement(peer):
    # Two tokens: the reference gives 1/2 and 1/2, then 3/4 and 1/4; the other 3/4 and 1/4 both times.
    third = math.log(3)
    found = peer.agreement(np.array([[5.0, 5.0], [third, 0.0]]), np.array([[third, 0.0], [third + 7, 7.0]]))
    first = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert found["places"] == 2 and found["kld_max"] == pytest.approx(first)
    assert found["kld_mean"] == pytest.approx(first / 2) == found["kld_median"]
    assert found["same_most_likely"] == 1.0  # of equal ones the lower id
    squares = math.log(0.5 / 0.75) ** 2 + math.log(0.5 / 0.25) ** 2
    assert found["log_probability_rms"] == pytest.approx(math.sqrt(squares / 4))


class Side:
    def __init__(self, name, seconds, log):
        self.name, self.seconds, self.log = name, seconds, log

    def prefill(self, n):
        self.log.append(self.name)
        return self.seconds * n

    def decode(self, n):
        return 2 * self.seconds * n


def test_turns(peer, capsys):
    log = []
    rates = peer.measure({"strata": Side("s", 0.5, log), "peer": Side("p", 1.0, log)}, tokens=4, decode=2, pairs=8)
    assert (
        "".join(log) == "ps" + "sp" + "ps" + "sp" + "ps" + "sp" + "ps" + "sp" + "ps"
    )  # a pair to warm up, then A B B A
    assert rates == {
        "prefill": {"strata": [2.0] * 8, "peer": [1.0] * 8},
        "decode": {"strata": [1.0] * 8, "peer": [0.5] * 8},
    }
    row = peer.compared(rates["prefill"])
    assert row["median"] == {"strata": 2.0, "peer": 1.0} and row["ratio"]["ratio"] == pytest.approx(2.0)
    assert "decode" not in peer.measure({"strata": Side("s", 1, []), "peer": Side("p", 1, [])}, 4, 0, 1)


def test_plot(peer, tmp_path):
    speed = {"prefill": {"tokens_per_second": {"strata": [2.0, 3.0], "peer": [1.0, 1.5]}}}
    peer.plot({"speed": speed}, np.array([0.0, 1e-3, 0.1]), str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
