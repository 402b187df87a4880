"""Ctrl-C at any moment: the call ends soon with KeyboardInterrupt, the session is as it was before the sweep, and
nothing is left running."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import strata
from terminal import environment

TEXT = Path(__file__).parents[1] / "data" / "demo" / "heldout.txt"
SOON = 1.0  # seconds
PROMPT = 100


def threads():
    """Of this process, as the system knows them."""
    return set(os.listdir("/proc/self/task"))


@pytest.fixture
def slow_drive(monkeypatch):
    """Every read of an expert takes 0.3 ms longer, so that much of the time is waiting for them."""
    whole = strata.Config.to_core
    monkeypatch.setattr(strata.Config, "to_core", lambda self: whole(self) | {"fault_delay_us": 300})


def strike(after, sent):
    """Ctrl-C of this process after so many seconds."""

    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    return timer


def tokens_of_the_text(model):
    return model.tokenizer.encode(TEXT.read_text("utf-8"))[:PROMPT]


def moments(count, seed):
    """Interrupts load, prefill and generation at random moments. Returns how often each was hit, and the latencies."""
    settings = {"context": 256, "prompt_chunk": 32, "prompt_sweep": 64, "arena_slots": 96, "threads": 2}
    rng = random.Random(seed)
    with strata.load(strata.demo_path(), **settings) as model:
        tokens = tokens_of_the_text(model)
        expected = model.prefill(tokens).logits.tobytes()
        start = time.perf_counter()
        model.session().generate(tokens, max_new_tokens=10, stop_at_eos=False)
        span = 1.3 * (time.perf_counter() - start)
    before = threads()
    hits, latencies = {}, []
    for _ in range(count):
        sent, phase, session, model = [], "load", None, None
        timer = strike(rng.uniform(0, span), sent)
        try:
            model = strata.load(strata.demo_path(), **settings)
            phase = "prefill"
            session = model.session()
            session.prefill(tokens)
            phase = "generate"
            session.generate([5], max_new_tokens=10, stop_at_eos=False)
            phase = "after"
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt:
            latencies.append(time.perf_counter() - sent[0])
        timer.join()
        hits[phase] = hits.get(phase, 0) + 1
        if session is not None:
            # Swept in pieces of 64: those that were done stay. The rest gives the bits of an uninterrupted prompt.
            assert session.position in ((0, 64, PROMPT) if phase == "prefill" else range(PROMPT, PROMPT + 12))
            if phase == "prefill" and session.position < PROMPT:
                assert session.prefill(tokens[session.position :]).logits.tobytes() == expected
            else:
                assert session.prefill([7]).stats["tokens"] >= 1
        if model is not None:
            model.close()
    assert threads() <= before  # none that was not there at the start
    return hits, latencies


def test_a_few_moments(slow_drive):
    hits, latencies = moments(8, seed=1)
    assert sum(hits.values()) == len(latencies) == 8


@pytest.mark.long
def test_two_hundred_moments(slow_drive):
    hits, latencies = moments(200, seed=2)
    assert sum(hits.values()) == 200 and hits["prefill"] > 20 and hits["generate"] > 20, hits
    assert max(latencies) < SOON, sorted(latencies)[-5:]


@pytest.mark.long
def test_commands_at_random_moments():
    """Whole commands, from the first moment of the program on: they end within a second, and say so once they run."""
    rng = random.Random(3)
    command = [sys.executable, "-m", "strata", "run", "--demo", "-n", "500", "--ignore-eos", "--isa", "portable"]
    said = 0
    for _ in range(40):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        time.sleep(rng.uniform(0, 1.5))
        child.send_signal(signal.SIGINT)
        start = time.perf_counter()
        _, err = child.communicate(timeout=60)
        assert time.perf_counter() - start < SOON
        # Before the command line is up, Python itself ends by the signal.
        assert child.returncode in (130, -signal.SIGINT), err
        if child.returncode == 130:
            said += 1
            assert b"interrupted" in err.splitlines()[-1] and b"Traceback" not in err
    assert said > 20
