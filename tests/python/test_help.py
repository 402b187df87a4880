"""`--help` of every command: a screen of it, with examples that run."""

import io
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import strata
import strata.cli
import strata.cli.ab
from strata.cli import run_guarded

LINES, WIDTH = 40, 100
COMMANDS = {f"strata {name}": command for name, command in strata.cli.strata.commands.items()}
COMMANDS |= {
    "strata": strata.cli.strata,
    "strata-ab": strata.cli.ab.compare_command,
    "strata-ab report": strata.cli.ab.report_command,
}

# Examples that take minutes, gigabytes, or files that are not here. Every command has one that is run.
NOT_RUN = ("--size", "--types", "--ram 24G", "base.kld", "git=", "-00001-of-", "/data")
OTHER_CODES = {"strata dump-compare": (1,)}  # portable kernels and this machine's may round apart


def examples(name):
    """The lines of a command's examples."""
    text = COMMANDS[name].epilog or ""
    _, mark, rest = text.partition("Examples:\n")
    assert mark, f"{name} has no examples"
    lines = rest.split("\n\n")[0].split("\n")
    found = [line.split("     (")[0].strip() for line in lines if line.startswith("  ")]
    assert found and all("strata" in line for line in found), name
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache" / "strata" / "ab").mkdir(parents=True)
    shutil.copy(strata.demo_path(), "model.gguf")
    Path("prompt.txt").write_text("Once upon a time there was a little dog.\n")
    Path("text.txt").write_text("Once upon a time there was a little dog. " * 15)
    Path("ids.json").write_text("[638, 503, 258, 485]")
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_fits_a_screen(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH + 2))  # click leaves two free
    words = [*name.split()[1:], "--help"]  # through the group, which sets the width
    whole = strata.cli.strata if name.startswith("strata ") else COMMANDS[name]
    assert run_guarded(whole, words if whole is strata.cli.strata else ["--help"], name.split()[0]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES, f"{len(lines)} lines"
    assert max(map(len, lines)) <= WIDTH


def run(line):
    """An example as a shell would run it, in this process; what is piped into it is on stdin already."""
    words = shlex.split(line.split(" | ")[-1])
    variables = {}
    while "=" in words[0]:
        key, _, variables[key] = words.pop(0).partition("=")
    name = words.pop(0)
    if words[0] == "report":
        name += " " + words.pop(0)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in variables.items():
            patch.setenv(key, value)
        return run_guarded(COMMANDS[name], words, name)


@pytest.mark.parametrize("name", [n for n in COMMANDS if not n.startswith("strata-ab")])
def test_examples(name, folder, capsys, monkeypatch):
    lines = [line for line in examples(name) if not any(mark in line for mark in NOT_RUN)]
    assert lines, f"no example of {name} is run"
    for line in lines:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Once upon a time")))
        code = run(line)
        out, err = capsys.readouterr()
        assert code in (0, *OTHER_CODES.get(name, ())), f"{line}: {err}"
        assert out, line


@pytest.mark.long
def test_examples_of_strata_ab(folder, capsys):
    assert run(examples("strata-ab")[0]) == 0
    assert run(examples("strata-ab report")[0]) == 0
    assert "patched" in capsys.readouterr().out
