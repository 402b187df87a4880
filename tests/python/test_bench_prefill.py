"""bench/prefill.py: its medians and ratios, by hand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import prefill


def side(prefill_seconds, decode_seconds, from_start, read):
    def part(seconds, count):
        return {
            "seconds": seconds,
            "tokens_per_second": count / seconds,
            "bytes": read,
            "gb_per_second": read / 1e9 / seconds,
            "major_faults": 7.0,
        }

    return {"prefill": part(prefill_seconds, 100), "decode": part(decode_seconds, 4), "from_start": from_start}


def report():
    pairs = [
        {"strata": side(1, 2, 4, 2e9), "llama.cpp": side(4, 2, 8, 4e9)},
        {"strata": side(2, 1, 5, 2e9), "llama.cpp": side(4, 2, 5, 4e9)},
        {"strata": side(4, 2, 4, 2e9), "llama.cpp": side(20, 1, 20, 4e9)},
    ]
    settings = {"file_bytes": 3e9, "limit": 2e9, "threads": 2, "throttle": 0.0, "probe_gb_per_second": 4.0}
    return settings | {"runs": {"100": pairs}}


def test_summary():
    r = report()
    text = "\n".join(prefill.summary(r))
    found = r["summary"]
    # tokens/s of strata 100, 50, 25; of llama.cpp 25, 25, 5; so the pairs' ratios are 4, 2, 5.
    row = found["prefill 100"]
    assert (row["strata"], row["llama.cpp"], row["ratio"], row["all"]) == (50, 25, 4, [2, 4, 5])
    assert row["bytes"] == [2e9, 4e9] and row["gb_per_second"] == [1, 1]
    assert row["share_of_limit"] == [0.25, 0.25] and row["major_faults"] == [7, 7]
    assert found["decode after 100"]["ratio"] == 1 and found["decode after 100"]["all"] == [0.5, 1, 2]
    # From the start: 25, 20, 25 against 12.5, 20, 5.
    assert found["from start 100"]["ratio"] == 2 and found["from start 100"]["strata"] == 25
    assert "prefill 100" in text and "4.00" in text


@pytest.mark.long
def test_plot(tmp_path):
    prefill.plot(report(), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"
