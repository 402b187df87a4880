"""For all tests: nothing is read from or left in the home of whoever runs them; a file of the real model's shapes."""

import itertools
import os

import pytest
from strata import gguf_write, synth

COUNT = itertools.count()


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path_factory):
    """A home folder for each test, made when something is written there."""
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(COUNT))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))


@pytest.fixture(scope="session")
def real_header(tmp_path_factory):
    """The header of a file of the real model's shapes, 40 GB of it, and nothing behind it."""
    path = tmp_path_factory.mktemp("real") / "real.gguf"
    s = synth.spec("real")
    path.write_bytes(gguf_write.header(synth.metadata(s), synth.tensors(s)))
    os.truncate(path, synth.file_bytes(s))
    return path
