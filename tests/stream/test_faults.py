"""Reads that fail, files that shrink, Ctrl-C: a typed error with the place, no thread left, the session usable."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from engine_cases import open_engine, path_of, prompt
from strata import Config, StreamIOError, _core

IDS = prompt("demo", 300)


@pytest.fixture(scope="module")
def want() -> np.ndarray:
    engine = open_engine("demo")
    logits, _ = engine.prefill(engine.session(), IDS, "all")
    return logits


def faulty(path: Path | None = None, **config) -> _core.Engine:
    knobs = {"activations": "f32", "prompt_chunk": 16, "prompt_sweep": 64, "arena_slots": 58}
    faults = {k: config.pop(k) for k in list(config) if k.startswith("fault_")}
    return _core.Engine(str(path or path_of("demo")), Config(**knobs | config).to_core() | faults)


@pytest.mark.parametrize("at", [0, 1, 50, 500, 1500, 3000])
@pytest.mark.parametrize("pred", [1, -1])
def test_eio(want, at, pred):
    engine = faulty(fault_eio_at=at, prompt_pred=pred)
    session = engine.session()
    try:
        logits, _ = engine.prefill(session, IDS, "all")
    except StreamIOError as e:
        assert e.errno == errno.EIO and e.file == str(path_of("demo"))
        assert 0 <= e.layer < 8 and 0 <= e.expert < 48 and 0 < e.offset < path_of("demo").stat().st_size
        assert f"layer {e.layer}, expert {e.expert}" in str(e)
        done = session.position
        assert done % 64 == 0 and done < 300  # where the failed sweep began
        logits, _ = engine.prefill(session, IDS[done:], "all")
        assert logits.tobytes() == want[done:].tobytes()
    else:
        # The failed read was a guess: read again when it was needed, or never needed.
        assert pred == 1
        assert logits.tobytes() == want.tobytes()


def test_without_guesses_the_first_failure_is_an_error():
    with pytest.raises(StreamIOError):
        engine = faulty(fault_eio_at=10, prompt_pred=-1)
        engine.prefill(engine.session(), IDS)


@pytest.mark.parametrize("direct_io", ["auto", "off"])
def test_a_file_cut_while_running(want, tmp_path, direct_io):
    path = tmp_path / "model.gguf"
    shutil.copy(path_of("demo"), path)
    whole = path.read_bytes()
    engine = faulty(path, direct_io=direct_io)
    session = engine.session()

    def cut(p):
        if p["layer"] == 3 and p["tokens_done"] == 64:
            os.truncate(path, 4_000_000)

    with pytest.raises(StreamIOError) as e:
        engine.prefill(session, IDS, "last", cut)
    assert "ended early" in str(e.value) and e.value.file == str(path) and e.value.expert >= 0
    assert session.position == 64
    with open(path, "r+b") as f:
        f.write(whole)
    logits, _ = engine.prefill(session, IDS[64:], "all")
    assert logits.tobytes() == want[64:].tobytes()


def test_an_exception_in_the_progress_callback(want):
    engine = faulty()
    session = engine.session()

    def stop(p):
        if p["tokens_done"] == 128 and p["layer"] == 5:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        engine.prefill(session, IDS, "last", stop)
    assert session.position == 128
    logits, _ = engine.prefill(session, IDS[128:], "all")
    assert logits.tobytes() == want[128:].tobytes()


def test_no_thread_is_left():
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads of a process are counted on Linux only")
    before = threads()
    engine = faulty(io_threads=8, threads=3)
    assert threads() == before + 8 + 2
    session = engine.session()
    with pytest.raises(LookupError):
        engine.prefill(session, IDS, "last", lambda p: (_ for _ in ()).throw(LookupError()))
    session.close()
    engine.close()
    deadline = time.monotonic() + 5
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == before


CHILD = """
    import hashlib, os, signal, sys, time
    import numpy as np
    from strata import Config, _core

    path, kill_at = sys.argv[1], float(sys.argv[2])
    ids = np.load(sys.argv[3])
    # Reads of up to 20 ms each make one sweep take seconds.
    config = Config(activations="f32", prompt_chunk=16, prompt_sweep=300, arena_slots=58, io_threads=1).to_core()
    engine = _core.Engine(path, config | {"fault_delay_us": 20000})
    session = engine.session()
    print("ready", flush=True)
    try:
        engine.prefill(session, ids)
        print("finished", flush=True)
    except KeyboardInterrupt:
        print("interrupted", session.position, flush=True)
    engine.close()
    config = Config(activations="f32").to_core()
    engine = _core.Engine(path, config)
    session = engine.session()
    logits, _ = engine.prefill(session, ids, "all")
    print(hashlib.sha256(logits.tobytes()).hexdigest(), flush=True)
"""


def test_ctrl_c_in_the_middle_of_a_sweep(want, tmp_path):
    np.save(tmp_path / "ids.npy", IDS)
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(path_of("demo")), "0", str(tmp_path / "ids.npy")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.4)
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted 0\n"
    assert time.monotonic() - sent < 1.0
    import hashlib

    assert child.stdout.readline().strip() == hashlib.sha256(want.tobytes()).hexdigest()
    assert child.wait(timeout=30) == 0
    child.stdout.close()
