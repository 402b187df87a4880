"""For all tests: nothing is read from or left in the home of whoever runs them."""

import itertools

import pytest

COUNT = itertools.count()


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path_factory):
    """A home folder for each test, made when something is written there."""
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(COUNT))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
