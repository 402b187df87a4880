"""What the core refuses, and what is left after an interruption: nothing that the next call would notice."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import strata
from engine_cases import open_engine, path_of, prompt
from strata import ConfigError, InputError, StreamIOError


@pytest.fixture
def engine():
    return open_engine("tiny-f32", context=64)


def ids(*values):
    return np.array(values, np.int32)


class TestRefused:
    @pytest.mark.parametrize(
        ("tokens", "says"),
        [
            (ids(), "empty"),
            (np.zeros(65, np.int32), "65 tokens.*64"),
            (ids(1, -1), "token 1 is -1"),
            (ids(512), "token 0 is 512.*0 to 511"),
            (np.zeros((2, 2), np.int32), "2 dimensions"),
        ],
    )
    def test_tokens(self, engine, tokens, says):
        session = engine.session()
        with pytest.raises(InputError, match=says):
            engine.prefill(session, tokens)
        assert session.position == 0

    def test_one_more_than_is_left(self, engine):
        session = engine.session()
        engine.prefill(session, prompt("tiny-f32", 63), "none")
        with pytest.raises(InputError, match="2 tokens; the session holds 63 of a context of 64"):
            engine.prefill(session, ids(1, 2))
        assert engine.prefill(session, ids(1))[0].shape == (512,) and session.position == 64

    def test_kind_of_logits(self, engine):
        with pytest.raises(ConfigError, match="logits"):
            engine.prefill(engine.session(), ids(1), "first")

    def test_session_of_another_model(self, engine):
        other = open_engine("tiny-f32", context=64)
        with pytest.raises(InputError, match="another model"):
            engine.prefill(other.session(), ids(1))

    def test_closed(self, engine):
        session = engine.session()
        session.close()
        session.close()
        assert session.closed
        for call in (lambda: engine.prefill(session, ids(1)), lambda: session.position, lambda: session.state("L0.S")):
            with pytest.raises(InputError, match="session is closed"):
                call()
        session = engine.session()
        engine.close()
        engine.close()
        for call in (engine.session, lambda: engine.info, lambda: engine.plan, lambda: engine.prefill(session, ids(1))):
            with pytest.raises(InputError, match="model is closed"):
                call()
        session.close()

    def test_state_that_is_not_there(self, engine):
        with pytest.raises(InputError, match=r"L9\.S"):
            engine.session().state("L9.S")

    def test_from_its_own_progress(self, engine):
        session = engine.session()
        with pytest.raises(InputError, match="own progress callback"):
            engine.prefill(session, ids(1, 2), "none", lambda state: engine.prefill(session, ids(1)))
        assert session.position == 0
        engine.prefill(session, ids(1, 2), "none")

    @pytest.mark.parametrize("isa", ["neon", "neon_dotprod", "neon_i8mm", "avx2", "avx512"])
    def test_instructions_that_are_not_there(self, isa):
        try:
            assert open_engine("tiny-f32", isa=isa).effective["isa"] == isa
        except ConfigError as e:
            assert e.knob == "isa" and "portable" in e.allowed


N = 200


@pytest.fixture(scope="module")
def want():
    engine = open_engine("tiny-f32", prompt_chunk=16, prompt_sweep=32)
    return engine.prefill(engine.session(), prompt("tiny-f32", N), "all")[0]


class TestStopped:
    """An exception in the progress callback ends the call; the session stands where the sweep began."""

    @pytest.mark.parametrize("at", [(0, 0, 1), (0, 4, 0), (32, 0, 2), (64, 2, 1), (160, 5, 0), (192, 5, 0)])
    @pytest.mark.parametrize("arena", [4, 80])
    def test_the_session_goes_on(self, want, at, arena):
        """Stopped at (tokens of finished sweeps, layer, chunk), three times over, then run to the end."""
        tokens = prompt("tiny-f32", N)
        engine = open_engine("tiny-f32", prompt_chunk=16, prompt_sweep=32, arena_slots=arena)
        session = engine.session()
        done = 0

        def stop(state):
            if (state["tokens_done"] + done, state["layer"], state["chunk"]) == at:
                raise LookupError("enough")

        for _ in range(3):
            with pytest.raises(LookupError, match="enough"):
                engine.prefill(session, tokens[done:], "none", stop)
            assert session.position == at[0]
            done = at[0]
        rest, stats = engine.prefill(session, tokens[done:], "all")
        assert rest.tobytes() == want[done:].tobytes()
        assert stats["lookups"] == stats["resident"] + stats["ahead"] + stats["missed"]
        assert stats["issued"] == stats["used"] + stats["wasted"] + stats["cancelled"] + stats["pending"]
        fresh = engine.prefill(engine.session(), tokens, "all")[0]
        assert fresh.tobytes() == want.tobytes()

    def test_a_read_that_fails(self, want):
        tokens = prompt("tiny-f32", N)
        # Without guesses: one that cannot be read is read again when it is needed.
        knobs = {"prompt_chunk": 16, "prompt_sweep": 32, "arena_slots": 8, "prompt_pred": -1, "fault_eio_at": 400}
        engine = open_engine("tiny-f32", **knobs)
        session = engine.session()
        with pytest.raises(StreamIOError, match="tiny-f32") as caught:
            engine.prefill(session, tokens, "none")
        assert caught.value.errno == 5 and caught.value.layer in range(5) and caught.value.expert in range(16)
        done = session.position
        assert done < N and done % 32 == 0
        assert engine.prefill(session, tokens[done:], "all")[0].tobytes() == want[done:].tobytes()

    def test_from_another_thread(self, want):
        """Sessions of one model in several threads take turns."""
        tokens = prompt("tiny-f32", N)
        engine = open_engine("tiny-f32", prompt_chunk=16, prompt_sweep=32, arena_slots=8)
        results, failures = {}, []

        def work(i):
            try:
                session = engine.session()
                parts = [
                    engine.prefill(session, tokens[a : a + 50], "all", lambda state: None)[0] for a in range(0, N, 50)
                ]
                results[i] = np.concatenate(parts)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and len(results) == 4
        assert all(r.tobytes() == want.tobytes() for r in results.values())


CHILD = """
import sys
import numpy as np
import strata

with strata.load(sys.argv[1], prompt_chunk=64, prompt_sweep=64, context=4096, threads=2) as model:
    ids = [(7 * i * i + 3 * i) % 490 for i in range(4000)]
    session = model.session()

    def progress(p):
        if p.tokens_done >= 128:
            print("go", flush=True)

    stopped = False
    while session.position < len(ids):
        try:
            last = session.prefill(ids[session.position:], progress=None if stopped else progress)
        except KeyboardInterrupt:
            stopped = True
            print("stopped", session.position, flush=True)
    assert np.array_equal(last.logits, model.prefill(ids).logits)
    print("equal")
"""


def interrupt_when(process, line):
    """Sends Ctrl-C once a line begins so; returns the seconds until the process said something else."""
    for text in process.stdout:
        if text.startswith(line):
            break
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    for text in process.stdout:
        if not text.startswith(line):
            return time.monotonic() - start, text.strip()
    raise AssertionError(f"ended with {process.wait()}")


def child_environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_ctrl_c():
    """A1: KeyboardInterrupt within a moment, at a sweep's edge, and the session goes on to the same bits."""
    command = [sys.executable, "-c", CHILD, str(path_of("tiny-f32"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as process:
        seconds, line = interrupt_when(process, "go")
        word, position = line.split()
        assert word == "stopped" and int(position) >= 128 and int(position) % 64 == 0
        assert process.stdout.read().strip() == "equal"
        assert process.wait() == 0
    assert seconds < 5  # a sweep takes milliseconds; the machine may be busy


def test_ctrl_c_at_the_command_line(tmp_path):
    """It says how far it was, and exits 130."""
    ids = tmp_path / "ids"
    ids.write_text(" ".join(str((7 * i * i + 3 * i) % 490) for i in range(4000)))
    command = [sys.executable, "-m", "strata", "prefill", "--demo", "--tokens", str(ids), "--prompt-chunk", "16"]
    command += ["--prompt-sweep", "16", "--threads", "1", "--arena-slots", "4", "--isa", "portable"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    ) as process:
        for line in process.stderr:
            if line.startswith("in force"):
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130 and out == ""
        last = err.strip().splitlines()[-1]
        assert last.startswith("interrupted in layer") and "of 4000 tokens done" in last


def test_an_error_closes_what_the_call_opened():
    with pytest.raises(LookupError):
        strata.prefill(path_of("tiny-f32"), [1, 2, 3], progress=lambda p: {}["nothing"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="takes the address space from /proc")
@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer reserves address space by the terabyte"
)
def test_fewer_threads_than_asked_for():
    """A system that gives no more threads: those it gave do the work, and a warning says so."""

    def child(*numbers):
        command = [
            sys.executable,
            Path(__file__).with_name("few_threads_child.py"),
            path_of("tiny-f16"),
            *map(str, numbers),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    free = child(2, 2, 0)
    assert free["warnings"] == []
    tight = child(400, 200, 150 * 10**6)
    assert tight["logits"] == free["logits"] and tight["product"] in (free["product"], "no memory")
    (warning,) = tight["warnings"]
    assert re.fullmatch(r"io_threads = 200, but the system gives no more than \d+", warning)
