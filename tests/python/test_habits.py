r"""Habits of the tools people come from, and what went wrong there: each row of the field reports, area A, as a command
in a pipe or at a real pseudo-terminal.

| row | what must hold | test |
|---|---|---|
| A1 | Ctrl-C stops at once, says what was done, leaves a usable session; a second one ends | TestInterrupt |
| A2 | a prompt file is read byte for byte; one newline is dropped only when asked | test_a2 |
| A3 | escapes only when asked, in --prompt only | test_a3 |
| A4 | whatever the arguments, an exception of a documented type; no abort | test_a4 |
| A5 | more tokens than the context, none, one: known before work | test_a5 |
| A6 | progress in a file too, with the time left; a last line that says why it ended | test_a6 |
| A7 | two settings that contradict each other are an error; every result says what was in force | test_a7 |
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
import strata
from terminal import ending, environment, pipe, terminal

DATA = Path(__file__).parents[1] / "data"
TEXT = DATA / "demo" / "heldout.txt"  # 2099 tokens
# The portable kernels are slow enough to be interrupted: 2099 tokens take many seconds.
SLOW = ("prefill", "--demo", "-f", TEXT, "--isa", "portable", "--prompt-chunk", "64", "--arena-slots", "96")


class TestInterrupt:
    def test_a1_at_a_terminal(self):
        child = terminal(*SLOW)
        child.expect(r"layer 3/8 chunk \d+/33")
        child.sendintr()
        text, code = ending(child)
        assert code == 130
        last = text.rstrip("\n").rsplit("\n", 1)[-1]
        assert last.startswith("interrupted in layer 3 of 8, 0 of 2099 tokens done, ") and "Traceback" not in text

    def test_a1_the_session_goes_on(self):
        """KeyboardInterrupt in Python; the same session then gives the bits of one that was never interrupted."""
        script = f"""
import os, strata
def threads():
    return set(os.listdir("/proc/self/task"))
before = threads()
with strata.load(strata.demo_path(), context=512, prompt_chunk=16, arena_slots=96, isa="portable") as model:
    tokens = model.tokenizer.encode(open({str(TEXT)!r}).read())[:120]
    session = model.session()
    session.prefill(tokens[:20])
    def tell(p):
        if (p.layer, p.chunk) == (2, 2):
            print("there", flush=True)
    try:
        session.prefill(tokens[20:], progress=tell)
    except KeyboardInterrupt:
        print("stopped at", session.position)
    result = session.prefill(tokens[20:])
    whole = model.session().prefill(tokens)
    print("same" if result.logits.tobytes() == whole.logits.tobytes() else "other", result.session.position)
print("left:", len(threads() - before))
"""
        child = pexpect.spawn(sys.executable, ["-c", script], env=environment(), timeout=60, encoding="utf-8")
        child.expect("there")
        child.sendintr()
        text, code = ending(child)
        lines = text.replace("^C", "").split("\n")
        assert ([line for line in lines if line], code) == (["stopped at 20", "same 120", "left: 0"], 0)

    def test_a1_the_second_one_ends(self):
        """Even when the first cannot: here the work swallows it, as a read that never comes back would."""
        script = """
import sys, time
import strata.cli, strata.api
def stuck(*_):
    print("working", flush=True)
    while True:
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            print("still here", flush=True)
strata.api.Session.prefill = lambda self, *a, **k: stuck()
strata.cli.main(["prefill", "--demo"])
"""
        child = pexpect.spawn(sys.executable, ["-c", script], env=environment(), timeout=60, encoding="utf-8")
        child.expect("working")
        child.sendintr()
        child.expect("still here")
        child.sendintr()
        assert ending(child)[1] == -signal.SIGINT

    def test_a1_while_text_is_written(self):
        child = terminal("run", "--demo", "-n", "4000", "--ignore-eos", "--isa", "portable")
        child.expect("Once upon a time, a clever .* .* ")
        child.sendintr()
        text, code = ending(child)
        assert code == 130 and "interrupted after " in text.rstrip("\n").rsplit("\n", 1)[-1]


def token_ids(*args, stdin=b""):
    done = pipe("prefill", "--demo", "--json", "-q", *args, stdin=stdin)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)["tokens"]


@pytest.fixture(scope="module")
def encode():
    with strata.load(strata.demo_path(), context=64) as model:
        yield model.tokenizer.encode


def test_a2(tmp_path, encode):
    for number, data in enumerate([b"The end", b"The end\n", b"The end\r\n", b"\xef\xbb\xbfThe end"]):
        file = tmp_path / str(number)
        file.write_bytes(data)
        expected = encode(data.decode())
        assert token_ids("-f", file) == expected == token_ids("-f", "-", stdin=data)
    assert token_ids("-f", tmp_path / "2", "--strip-newline") == encode("The end")
    assert len({tuple(encode(t)) for t in ("The end", "The end\n", "The end\r\n")}) == 3
    assert pipe("prefill", "--demo", "-f", tmp_path / "1").stdout.splitlines()[0].split() == [
        "tokens",
        str(len(encode("The end\n"))),
    ]


def test_a3(encode):
    assert token_ids("-p", r"a\nb") == encode(r"a\nb") != encode("a\nb")
    assert token_ids("-p", r"a\nb", "--escapes") == encode("a\nb")
    assert token_ids("-p", r'{"a":"\\n"}') == encode(r'{"a":"\\n"}')
    assert token_ids("-f", "-", stdin=rb"a\nb") == encode(r"a\nb")
    assert "Replace \\n, \\t, \\\\, \\xNN, \\uNNNN in --prompt. Off by default." in " ".join(
        pipe("prefill", "--help").stdout.split()
    )


def test_a4():
    """Arguments of the wrong kind, in a process of their own: it must come to its last line."""
    script = """
import numpy as np, strata
model = strata.load(strata.demo_path(), context=32)
closed = model.session(); closed.close()
ended = strata.load(strata.demo_path(), context=32); late = ended.session(); ended.close()
names = set()
def refused(call):
    try:
        call()
    except (strata.StrataError, ValueError, TypeError) as e:
        names.add(type(e).__name__)
    else:
        print("taken:", call.__code__.co_consts)
prompts = [None, 1, 1.5, b"a", [1.5], [-1], [10**30], ["a"], [None], [[1]], {}, object(), "", [], [4000000], True]
prompts += [np.zeros((2, 2), int), np.array([np.nan]), np.array(["a"]), np.zeros(0)]
for prompt in prompts:
    refused(lambda: model.prefill(prompt))
    refused(lambda: model.generate(prompt, max_new_tokens=1))
for value in (None, -1, 0, 1.5, "3", float("nan"), [], True):
    refused(lambda: model.generate("a", max_new_tokens=value))
for value in (None, -1, 1.5, "3", float("nan"), 10**30, [], True):
    refused(lambda: strata.load(strata.demo_path(), threads=value))
refused(lambda: model.prefill("a", logits="some"))
refused(lambda: model.prefill("a", progress=3))
for session in (closed, late):
    refused(lambda: session.prefill("a"))
    refused(lambda: session.position)
for path in (None, 3, b"x", "", "/", "/no/such/file", "/dev/null"):
    refused(lambda: strata.load(path))
print("done", *sorted(names))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done", "ConfigError", "InputError", "ModelFormatError"]


def test_a5():
    def run(count):
        ids = " ".join(["5"] * count).encode()
        return pipe("prefill", "--demo", "--tokens", "-", "--context", "8", "-q", stdin=ids)

    assert run(8).returncode == run(1).returncode == 0
    done = run(9)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "error: the prompt has 9 tokens, the context has room for 8.\n"
    assert "0 tokens" in run(0).stderr and run(0).returncode == 1


def test_a6(tmp_path):
    """The file is cut under the running prompt: what was shown until then, and why it ended."""
    model, log = tmp_path / "model.gguf", tmp_path / "log"
    shutil.copy(strata.demo_path(), model)
    args = [sys.executable, "-m", "strata", "prefill", model, *SLOW[2:]]
    with log.open("wb") as err:
        child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=err, env=environment())
    try:
        while " left, " not in log.read_text("utf-8") and child.poll() is None:
            time.sleep(0.05)
        os.truncate(model, 100_000)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    lines = log.read_text("utf-8").splitlines()
    assert child.returncode == 1 and out == b""
    shown = next(line for line in lines if line.startswith("prefill "))
    for part in ("layer ", " s left", " tok/s", "B read, ", " GB/s", " of 2099 tokens", "ahead"):
        assert part in shown
    assert lines[-2].startswith("stopped by StreamIOError in layer ") and "0 of 2099 tokens done" in lines[-2]
    assert lines[-1].startswith(f"error: {model}: ") and "ended early" in lines[-1] and "Traceback" not in str(lines)


def test_a7(tmp_path):
    (tmp_path / "strata.toml").write_text("arena_slots = 96\n")
    done = pipe("prefill", "--demo", cwd=tmp_path, STRATA_METAL_ARENA_GB="0.01")
    assert done.returncode == 1 and done.stdout == ""
    for part in ("arena_gb = 0.01 (STRATA_METAL_ARENA_GB)", "arena_slots = 96 (strata.toml)", "contradict"):
        assert part in done.stderr
    assert pipe("prefill", "--demo", "--arena-gb", "1", "--arena-gb", "2").returncode == 2
    done = pipe("prefill", "--demo", "--json", "--threads", "1", cwd=tmp_path, STRATA_IO_THREADS="2")
    config = json.loads(done.stdout)["config"]
    chosen = {name: (v["value"], v["source"]) for name, v in config.items() if v["source"] != "default"}
    assert chosen == {
        "arena_slots": (96, "strata.toml"),
        "threads": (1, "argument"),
        "io_threads": (2, "STRATA_IO_THREADS"),
    }
    assert "chosen: io_threads = 2 (STRATA_IO_THREADS), arena_slots = 96 (strata.toml), threads = 1 (arg" in done.stderr
