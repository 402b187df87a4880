"""The live line and the last line: what they say, and that there is one on every way out."""

import dataclasses
import io
import re

import pytest
import strata
from rich.console import Console
from strata.progress import Progress, Reporter

HALF = Progress(
    layer=3,
    n_layer=48,
    chunk=2,
    n_chunk=4,
    tokens_done=0,
    tokens=4000,
    sweep_tokens=4000,
    bytes_read=30_000_000_000,
    seconds=20.0,
    resident=100,
    ahead=200,
    missed=10,
    wasted=3,
    exposed_seconds=1.5,
    fraction=0.25,
)


def test_figures():
    assert (HALF.gb_per_second, HALF.tokens_per_second, HALF.seconds_left) == (1.5, 50.0, 60.0)
    assert HALF.parts(drive_gb_s=3.0) == [
        "layer 4/48 chunk 2/4",
        "60 s left",
        "50.0 tok/s",
        "30 GB read, 1.50 GB/s (50% of the drive)",
        "1000 of 4000 tokens",
        "experts 100 resident, 200 ahead, 10 missed, 3 wasted, 1.5 s waited",
    ]
    assert "of the drive" not in " ".join(HALF.parts())


@pytest.mark.parametrize(("left", "text"), [(89, "89 s left"), (90, "2 min left"), (5400, "1.5 h left")])
def test_time_left(left, text):
    # A quarter done: three times as long again.
    assert text in dataclasses.replace(HALF, seconds=left / 3).parts()


@pytest.fixture
def report():
    """Runs a function under a reporter; gives what it printed."""

    def call(work, **console):
        out = io.StringIO()
        reporter = Reporter(Console(file=out, highlight=False, **console), drive_gb_s=3.0)
        try:
            with reporter:
                work(reporter)
        except BaseException as e:
            return out.getvalue(), e
        return out.getvalue(), None

    return call


def stop_with(error):
    def work(reporter):
        reporter(HALF)
        raise error

    return work


@pytest.mark.parametrize(
    ("work", "last"),
    [
        (lambda r: r(dataclasses.replace(HALF, fraction=1.0)), "prefill done: 4000 tokens in 20.00 s, 200.0 tok/s, "),
        (lambda r: None, "prefill done"),
        (stop_with(KeyboardInterrupt()), "interrupted in layer 4 of 48, 0 of 4000 tokens done, 30 GB read in 20.0 s."),
        (stop_with(strata.StreamIOError("x")), "stopped by StreamIOError in layer 4 of 48, "),
    ],
)
@pytest.mark.parametrize("console", [{}, {"force_terminal": True, "width": 80}])
def test_a_last_line_on_every_way_out(report, work, last, console):
    text, _ = report(work, **console)
    assert last in text.rstrip("\n").rsplit("\n", 1)[-1]
    assert text.count(last) == 1


def test_before_the_first_layer(report):
    def work(_):
        raise KeyboardInterrupt

    text, error = report(work)
    assert isinstance(error, KeyboardInterrupt) and text == "interrupted before the first layer was done.\n"


def test_a_terminal_is_not_wider_than_it_is(report):
    for width, parts in ((50, 1), (64, 2), (80, 3), (120, 4), (150, 5), (220, 6)):
        text, _ = report(lambda r: r(HALF), force_terminal=True, width=width, color_system=None)
        lines = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")
        shown = [line for line in lines if "layer 4/48" in line]
        assert shown and all(len(line) <= width for line in lines[:-2])
        assert shown[0].endswith(" · ".join(HALF.parts(3.0)[:parts]))


def test_lines_without_a_terminal_come_now_and_then(report, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("strata.progress.time.monotonic", lambda: now[0])

    def work(reporter):
        for now[0] in range(60):
            reporter(HALF)

    text, _ = report(work)
    # After 2 s, then every 10: 2, 12, 22, 32, 42, 52; and the last line.
    assert text.count("\n") == 7 and text.startswith("prefill 25 %: layer 4/48 chunk 2/4, 60 s left, 50.0 tok/s, ")


def test_true_is_lines_in_a_notebook(tiny, capsys, monkeypatch):
    """No escape sequence, no drawing: plain lines on stderr, which is what a notebook's stream is."""
    monkeypatch.setattr("strata.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    strata.prefill(tiny, "Hello", progress=True).session.close()
    out, err = capsys.readouterr()
    assert out == "" and "\x1b" not in err and err.splitlines()[-1].startswith("prefill done: 4 tokens")
    assert "layer 5/5" in err
