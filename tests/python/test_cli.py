"""The command line: what goes to stdout and stderr, exit codes, prompts byte for byte."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import click
import numpy as np
import pexpect
import pytest
import strata
import strata.cli
import strata.cli.ab
from rich.text import Text
from strata import _core, gguf_write
from strata.config import KNOBS
from strata.errors import OutOfMemoryPlanError
from terminal import environment, terminal


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.last = err.rstrip("\n").rsplit("\n", 1)[-1]


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs `strata ARGS` in this process."""

    def call(*args, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            strata.cli.main([str(a) for a in args])
        return Outcome(caught.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def ids(run, tiny):
    """Token ids that `strata prefill` runs for prompt options."""

    def call(*args, stdin=b""):
        outcome = run("prefill", tiny, "--json", "-q", *args, stdin=stdin)
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)["tokens"]

    return call


class TestPrefill:
    def test_text(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "Hello")
        assert outcome.code == 0
        lines = outcome.out.splitlines()
        assert [line.split()[0] for line in lines[:5]] == ["tokens", "time", "read", "experts", "next"]
        assert lines[0].split() == ["tokens", "4"] and "tok/s" in lines[1] and "missed" in lines[3]
        assert lines[4].endswith("after 'Hello'")
        assert len(lines) == 10 and all("%" in line for line in lines[5:])
        assert "memory plan" in outcome.err and "in force: " in outcome.err and "chosen" not in outcome.err

    def test_end_of_a_long_prompt(self, run, tiny):
        lines = run("prefill", tiny, "-p", "first " + "b" * 100 + " last", "-q").out.splitlines()
        assert lines[4].endswith("bbb last'") and "…" in lines[4] and "first" not in lines[4] and len(lines[4]) < 90

    def test_json(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "Hello", "--json", "--threads", "2", "--arena-slots=9")
        report = json.loads(outcome.out)
        assert report["tokens"] == [39, 292, 75, 78] and report["position"] == 4
        assert report["config"]["threads"] == {"value": 2, "source": "argument"}
        assert report["config"]["context"]["source"] == "default"
        assert report["effective"]["arena_slots"] == 9
        assert report["stats"]["tokens"] == 4 and report["plan"][0]["bytes"] > 0
        shares = [t["probability"] for t in report["next"]]
        assert len(shares) == 5 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
        assert "chosen: arena_slots = 9 (argument), threads = 2 (argument)" in outcome.err or "chosen" in outcome.err

    def test_same_as_the_api(self, run, tiny, tmp_path):
        out = tmp_path / "logits"
        run("prefill", tiny, "-p", "Hello", "--logits-out", out)
        assert np.array_equal(np.load(out), strata.prefill(tiny, "Hello").logits)
        run("prefill", tiny, "-p", "Hello", "--logits-out", out, "--logits", "all")
        whole = np.load(out)
        assert whole.dtype == np.float32 and np.array_equal(whole, strata.prefill(tiny, "Hello", logits="all").logits)

    def test_demo(self, run):
        outcome = run("prefill", "--demo", "--json")
        assert outcome.code == 0 and json.loads(outcome.out)["tokens"][:4] == [638, 503, 258, 485]
        assert json.loads(run("prefill", "--demo", "-p", "Long", "--json").out)["tokens"][0] == 1004

    def test_quiet(self, run, tiny):
        assert run("prefill", tiny, "-p", "a", "-q").err == ""

    def test_no_colour_codes_away_from_a_terminal(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "a")
        assert "\x1b" not in outcome.out + outcome.err

    def test_interrupt(self, run, tiny, monkeypatch):
        real = strata.cli.prefill.Reporter.__call__

        def interrupt(self, progress):
            real(self, progress)
            if progress.layer == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(strata.cli.prefill.Reporter, "__call__", interrupt)
        outcome = run("prefill", tiny, "-p", "Hello")
        assert outcome.code == 130 and outcome.out == ""
        assert outcome.last.startswith("interrupted in layer 4 of 5, 0 of 4 tokens done")

    def test_interrupt_while_loading(self, run, tiny, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(_core, "Engine", interrupt)
        outcome = run("prefill", tiny, "-p", "Hello")
        assert outcome.code == 130 and outcome.last == "interrupted."

    def test_progress_lines_away_from_a_terminal(self, run, tiny, monkeypatch):
        monkeypatch.setattr("strata.progress.LINE_SECONDS", 0.0)
        outcome = run("prefill", tiny, "-p", "Hello")
        assert "prefill 100 %: layer 5/5, 0 s left, " in outcome.err and "4 of 4 tokens" in outcome.err
        assert outcome.err.count("prefill ") == 5 * 2 + 1  # a report after each half layer, and the last line


class TestPrompt:
    @pytest.mark.parametrize("data", [b"a", b"a\n", b"a\r\n", b"\xef\xbb\xbfa", b"a\n\n", b"\n", b"a\\nb", b"\x00"])
    def test_every_byte_of_a_file_and_of_stdin(self, ids, tiny, tmp_path, data):
        file = tmp_path / "prompt"
        file.write_bytes(data)
        with strata.load(tiny) as model:
            expected = model.tokenizer.encode(data.decode())
        assert ids("-f", file) == expected == ids("-f", "-", stdin=data)

    @pytest.mark.parametrize(
        ("data", "left"), [(b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), (b"a", "a"), (b"a\r", "a\r")]
    )
    def test_strip_newline(self, ids, data, left):
        assert ids("-f", "-", "--strip-newline", stdin=data) == ids("-f", "-", stdin=left.encode())

    def test_escapes_only_when_asked_for(self, ids):
        assert ids("-p", r"a\nb") == ids("-f", "-", stdin=rb"a\nb")
        assert ids("-p", r"a\nb", "--escapes") == ids("-f", "-", stdin=b"a\nb")
        assert ids("-p", r'{"a":"\\n"}', "--escapes") == ids("-f", "-", stdin=rb'{"a":"\n"}')
        assert ids("-p", r"\q\x41\u00e9\U0001F680\\", "--escapes") == ids("-f", "-", stdin="\\qAé🚀\\".encode())

    def test_escape_that_is_no_character(self, run, tiny):
        for text in (r"\U00110000", r"\ud800"):
            assert run("prefill", tiny, "--escapes", "-p", text).code == 1

    @pytest.mark.parametrize("data", [b"[1, 2, 3]", b"1 2 3", b" 1\n2\t3\n", b"\n[1,2,\n3]\n"])
    def test_tokens(self, ids, tmp_path, data):
        file = tmp_path / "ids"
        file.write_bytes(data)
        assert ids("--tokens", file) == [1, 2, 3] == ids("--tokens", "-", stdin=data)

    @pytest.mark.parametrize(
        "data", [b"[1, 2.5]", b"[true]", b"1 x", b"[1", b"[[1]]", b'["1"]', b"\xff", b"[" * 100_000]
    )
    def test_bad_tokens(self, run, tiny, data):
        outcome = run("prefill", tiny, "--tokens", "-", stdin=data)
        assert outcome.code == 1 and outcome.last.startswith("error: ") and outcome.err.count("\n") == 1

    def test_literal(self, ids):
        assert ids("-p", "<|im_end|>") == [498] and 498 not in ids("-p", "<|im_end|>", "--literal")

    def test_not_utf8(self, run, tiny):
        outcome = run("prefill", tiny, "-f", "-", stdin=b"ab\xff")
        assert outcome.code == 1 and "byte 2 is 0xff" in outcome.last


class TestUsage:
    @pytest.mark.parametrize(
        ("args", "says"),
        [
            (["prefill"], "--demo"),
            (["prefill", "MODEL", "--demo"], "not both"),
            (["prefill", "MODEL"], "one prompt"),
            (["prefill", "MODEL", "-p", "a", "--tokens", "-"], "--prompt and --tokens"),
            (["prefill", "MODEL", "-f", "-", "--escapes"], "--escapes"),
            (["prefill", "MODEL", "-p", "a", "--strip-newline"], "--strip-newline"),
            (["prefill", "MODEL", "-f", "/no/such/file"], "/no/such/file"),
            (["prefill", "MODEL", "-p", "a", "--threads", "x"], "whole number from 0 to 1024"),
            (["prefill", "MODEL", "-p", "a", "--isa", "sse"], "avx2"),
            (["prefill", "MODEL", "-p", "a", "--logits", "all"], "--logits-out"),
            (["prefill", "MODEL", "-p", "a", "--logits-out", "/no/such/folder/x"], "/no/such/folder"),
            (["run", "MODEL", "-p", "a", "-n", "0"], "-n"),
            (["nothing"], "nothing"),
            (["inspect"], "MODEL"),
        ],
    )
    def test_wrong(self, run, tiny, args, says):
        outcome = run(*[tiny if a == "MODEL" else a for a in args])
        assert outcome.code == 2 and says in outcome.err and outcome.out == ""

    @pytest.mark.parametrize("command", [[], ["prefill"], ["run"], ["inspect"]])
    def test_help_has_an_example(self, run, command):
        outcome = run(*command, "--help")
        assert outcome.code == 0 and "Example" in outcome.out and "strata " in outcome.out
        assert run(*command, "-h").out == outcome.out

    def test_every_knob_is_an_option(self, run):
        for command in ("prefill", "run", "plan", "kld", "config"):
            words = run(command, "--help").out.split()
            for knob in KNOBS.values():
                assert f"--{knob.name.replace('_', '-')}" in words

    def test_an_option_twice(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "a", "--threads", "1", "--threads", "2")
        assert outcome.code == 2 and "1 and 2" in outcome.err
        assert run("prefill", tiny, "-p", "a", "--threads", "1", "--threads", "1").code == 0

    def test_version(self, run):
        assert strata.__version__ in run("--version").out

    def test_ab_names_what_an_arm_can_be(self, capsys):
        with pytest.raises(SystemExit) as caught:
            strata.cli.ab.main(["base", "nothing"])
        assert caught.value.code == 1 and "base, patched" in capsys.readouterr().err


class TestErrors:
    def test_text_that_the_terminal_has_no_letters_for(self, tiny, monkeypatch):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
        with pytest.raises(SystemExit) as caught:
            strata.cli.main(["run", str(tiny), "-p", "für 🚀", "-n", "1"])
        assert caught.value.code == 0 and written.getvalue().startswith(b"f\xfcr \\U0001f680")

    def test_one_sentence(self, run, tmp_path):
        outcome = run("prefill", tmp_path / "nothing.gguf", "-p", "a")
        assert outcome.code == 1 and outcome.out == "" and outcome.err.count("\n") == 1
        assert outcome.err.startswith("error: ") and "nothing.gguf" in outcome.err

    def test_traceback_on_request(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("STRATA_DEBUG", "1")
        outcome = run("prefill", tmp_path / "nothing.gguf", "-p", "a")
        assert "Traceback" in outcome.err and outcome.last.startswith("error: ")

    def test_longer_than_the_context(self, run, tiny):
        outcome = run("prefill", tiny, "-f", "-", "--context", "8", stdin=b"1" * 9)
        assert outcome.code == 1 and "9 tokens" in outcome.last and "room for 8" in outcome.last

    def test_contradiction(self, run, tiny, monkeypatch):
        monkeypatch.setenv("STRATA_ARENA_GB", "2")
        outcome = run("prefill", tiny, "-p", "a", "--arena-slots", "3")
        assert outcome.code == 1 and "STRATA_ARENA_GB" in outcome.last

    def test_warning_is_a_line(self, run, tiny, monkeypatch):
        monkeypatch.setenv("STRATA_THRAEDS", "2")
        outcome = run("prefill", tiny, "-p", "a", "-q")
        assert outcome.code == 0
        assert (
            outcome.err
            == "warning: STRATA_THRAEDS is no knob of strata and has no effect; did you mean STRATA_THREADS?\n"
        )

    def test_files_that_are_not_whole(self, run, tmp_path):
        whole = strata.demo_path().read_bytes()
        half, page, first = tmp_path / "half.gguf", tmp_path / "page.gguf", tmp_path / "m-00001-of-00003.gguf"
        half.write_bytes(whole[:5_000_000])
        page.write_bytes(b"\n<!DOCTYPE html><html><title>404</title>")
        for part in (0, 2):
            keys = [("general.architecture", "str", "qwen4exp"), ("split.no", "u16", part), ("split.count", "u16", 3)]
            tensor = gguf_write.Tensor(f"t{part}", (32,), "F32")
            path = tmp_path / f"m-{part + 1:05d}-of-00003.gguf"
            path.write_bytes(gguf_write.header(keys, [tensor]) + bytes(tensor.bytes + gguf_write.ALIGNMENT))
        for path, says in (
            (half, f"the file has 5000000 bytes, needs {len(whole)}"),
            (page, "looks like HTML"),
            (first, "found 2 of 3 parts, missing number 2 ("),
        ):
            for command in (["inspect"], ["plan"], ["prefill", "-p", "a"]):
                outcome = run(*command, path)
                assert outcome.code == 1 and outcome.out == "" and outcome.err.count("\n") == 1
                assert outcome.err.startswith(f"error: {path}") and says in outcome.err

    def test_plan_that_does_not_fit(self, run, tiny, monkeypatch):
        def refuse(*_):
            error = OutOfMemoryPlanError("the plan needs 9 GB, 8 GB are there.")
            error.plan = "arena  9 GB\n"
            raise error

        monkeypatch.setattr(_core, "Engine", refuse)
        outcome = run("prefill", tiny, "-p", "a", "-q")
        assert outcome.code == 1 and outcome.err == "arena  9 GB\nerror: the plan needs 9 GB, 8 GB are there.\n"

    def test_bug_is_no_traceback(self, run, tiny, monkeypatch):
        monkeypatch.setattr(_core, "Engine", lambda *_: 1 / 0)
        outcome = run("prefill", tiny, "-p", "a", "-q")
        assert outcome.code == 1 and outcome.err.startswith("internal error: ZeroDivisionError")

    def test_logits_file_that_cannot_be_written(self, run, tiny, tmp_path):
        outcome = run("prefill", tiny, "-p", "a", "--logits-out", tmp_path)
        assert outcome.code == 2 and "directory" in outcome.err


class TestRun:
    def test_prompt_and_continuation(self, run, tiny):
        outcome = run("run", tiny, "-p", "Hello", "-n", "5")
        expected = strata.generate(tiny, "Hello", max_new_tokens=5).text
        assert outcome.code == 0 and outcome.out == "Hello" + expected + "\n"
        assert "tok/s" in outcome.last and "the limit" in outcome.last

    def test_tokens_are_shown_as_text(self, run, tiny):
        assert run("run", tiny, "--tokens", "-", "-n", "1", stdin=b"39 292 75 78").out.startswith("Hello")

    def test_seed(self, run, tiny):
        args = ("run", tiny, "-p", "Hello", "-n", "12", "--temperature", "1", "--seed")
        assert run(*args, "1").out == run(*args, "1").out != run(*args, "2").out

    def test_bad_argument(self, run, tiny):
        outcome = run("run", tiny, "-p", "a", "--temperature", "-1")
        assert outcome.code == 1 and "temperature" in outcome.last and outcome.out == ""

    def test_demo(self, run):
        assert run("run", "--demo", "-n", "2").out.startswith("Once upon a time")

    def test_end_of_the_context(self, run, tiny):
        outcome = run("run", tiny, "-p", "Hello", "-n", "50", "--context", "6", "--ignore-eos")
        assert outcome.code == 0 and "the end of the context" in outcome.last

    def test_interrupt(self, run, tiny, monkeypatch):
        real, calls = click.echo, []

        def echo(*args, **kw):
            calls.append(args)
            if len(calls) == 4:  # the prompt and two tokens are out
                raise KeyboardInterrupt
            real(*args, **kw)

        monkeypatch.setattr(strata.cli.run.click, "echo", echo)
        outcome = run("run", tiny, "-p", "Hello", "-n", "9")
        assert outcome.code == 130 and outcome.out.startswith("Hello") and outcome.out.endswith("\n")
        assert outcome.last.startswith("interrupted after 3 new tokens")


class TestConfig:
    def test_every_value_and_its_source(self, run, tmp_path, monkeypatch):
        file = tmp_path / "fast.toml"
        file.write_text("io_threads = 8\nthreads = 3\n")
        monkeypatch.setenv("STRATA_METAL_PROMPT_PRED", "0")
        monkeypatch.setenv("STRATA_THREADS", "5")
        outcome = run("config", "--config", file, "--context", "64", "--json")
        rows = json.loads(outcome.out)["knobs"]
        assert set(rows) == set(KNOBS) and outcome.err == ""
        found = {n: (rows[n]["value"], rows[n]["source"]) for n in ("threads", "io_threads", "prompt_pred", "context")}
        assert found == {
            "threads": (3, str(file)),
            "io_threads": (8, str(file)),
            "prompt_pred": (0, "STRATA_METAL_PROMPT_PRED"),
            "context": (64, "argument"),
        }
        assert (rows["isa"]["value"], rows["isa"]["source"]) == ("auto", "default")
        lines = run("config", "--config", file).out.splitlines()
        assert [line.split()[:2] for line in lines if line.startswith("threads")] == [["threads", "3"]]
        assert len(lines) <= 40

    def test_one_setting(self, run):
        text = run("config", "prompt-chunk").out
        assert "0 (default)" in text and "from 0 to 65536" in text and "STRATA_METAL_PROMPT_CHUNK" in text
        outcome = run("config", "thraeds")
        assert outcome.code == 1 and "did you mean threads" in outcome.last

    def test_results_carry_every_setting(self, run, tiny):
        report = json.loads(run("prefill", tiny, "-p", "a", "--threads", "1", "--json").out)
        assert set(report["config"]) == set(KNOBS)
        assert report["config"]["threads"] == {"value": 1, "source": "argument"}
        result = strata.generate(tiny, "a", max_new_tokens=1, threads=1)
        assert result.config.sources["threads"] == "argument" and result.effective["threads"] == 1

    def test_page_of_the_knobs(self):
        path = Path(__file__).parents[2] / "tools" / "make_knob_docs.py"
        maker = runpy.run_path(str(path))
        assert maker["PAGE"].read_text("utf-8") == maker["page"](), "run tools/make_knob_docs.py"


class TestInspect:
    @pytest.fixture(autouse=True)
    def module(self, monkeypatch):
        module = types.ModuleType("strata.inspect")
        module.inspect = lambda path: {"path": path}
        module.render = lambda info: Text(f"file {info['path']}")
        module.to_json = json.dumps
        monkeypatch.setitem(sys.modules, "strata.inspect", module)
        monkeypatch.setattr(strata, "inspect", module, raising=False)

    def test_text_and_json(self, run):
        assert run("inspect", "m.gguf").out == "file m.gguf\n"
        assert json.loads(run("inspect", "m.gguf", "--json").out) == {"path": "m.gguf"}


def test_reader_that_goes_away():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "strata", "--help"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=env, check=False)
    os.close(write)
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"Exception" not in done.stderr


class TestDoctor:
    def test_facts(self, run, tiny):
        outcome = run("doctor", tiny, "--json", "--threads", "1")
        facts = json.loads(outcome.out)
        assert outcome.code == 0 and facts["check"]["works"] and "Paris" in facts["check"]["said"]
        assert facts["strata"]["version"] == strata.__version__
        assert facts["processor"]["instruction_sets"] == _core.cpu_isas()
        assert facts["processor"]["usable"] <= facts["processor"]["cores"] == os.cpu_count()
        assert 0 < facts["memory"]["usable"] <= facts["memory"]["total"]
        assert facts["drive"]["path"] == str(tiny) and 0 < facts["drive"]["free"] <= facts["drive"]["size"]
        assert facts["settings"]["chosen"] == {"threads": {"value": 1, "source": "argument"}}

    def test_one_screen(self, run, tmp_path):
        outcome = run("doctor", tmp_path)
        lines = outcome.out.splitlines()
        assert outcome.code == 0 and len(lines) <= 24 and max(map(len, lines)) <= 100
        for word in ("strata", "system", "processor", "memory", "drive", "settings", "check"):
            assert any(line.startswith(word) for line in lines)

    def test_a_machine_on_which_it_does_not_work(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr("strata.doctor.ANSWER", "London")
        outcome = run("doctor", tmp_path)
        assert outcome.code == 1 and "FAILED: 'The capital of France is Paris.'" in outcome.out


class TestCache:
    @pytest.fixture(autouse=True)
    def kept(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        self.folder = tmp_path / "strata"

    def fill(self):
        (self.folder / "ab" / "git-1").mkdir(parents=True)
        (self.folder / "ab" / "git-1" / "big").write_bytes(b"x" * 1_500_000)
        (self.folder / "ab" / "link").symlink_to(self.folder / "ab" / "git-1" / "big")
        (self.folder / "ssd").mkdir()
        (self.folder / "ssd" / "1.json").write_bytes(b"x" * 700)

    def test_nothing(self, run):
        assert run("cache").out == f"{self.folder}: nothing\n"
        assert json.loads(run("cache", "--json").out)["kept"] == []

    def test_sizes(self, run):
        self.fill()
        lines = run("cache").out.splitlines()
        assert [line.split()[:3] for line in lines[1:]] == [["ab", "1.5", "MB"], ["ssd", "700", "B"]]
        kept = json.loads(run("cache", "--json").out)["kept"]
        assert {row["name"]: row["bytes"] for row in kept} == {"ab": 1_500_000, "ssd": 700}
        assert [row["name"] for row in json.loads(run("cache", "ssd", "--json").out)["kept"]] == ["ssd"]

    def test_clear(self, run):
        self.fill()
        assert run("cache", "ssd", "--clear").code == 0
        assert [path.name for path in self.folder.iterdir()] == ["ab"]
        outcome = run("cache", "ssd", "--clear")
        assert outcome.code == 1 and "there is: ab" in outcome.last
        assert run("cache", "--clear").code == 0 and list(self.folder.iterdir()) == []


class TestOutput:
    def test_run_as_json(self, run, tiny):
        report = json.loads(run("run", tiny, "-p", "Hello", "-n", "5", "--json", "--threads", "1").out)
        expected = strata.generate(tiny, "Hello", max_new_tokens=5)
        assert (report["text"], report["tokens"]) == (expected.text, expected.tokens)
        assert report["prompt_tokens"] == 4 and report["finish_reason"] == expected.finish_reason
        assert report["config"]["threads"] == {"value": 1, "source": "argument"} and report["summary"]["tokens"] == 4

    def test_summary_of_a_prefill(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "Hello", "--json")
        report = json.loads(outcome.out)
        labels = [line.split()[0] for line in outcome.err.splitlines()]
        at = labels.index("memory", labels.index("prefill"))
        assert labels[at : at + 4] == ["memory", "experts", "drive", "time"]
        assert report["summary"]["experts"]["lookups"] == report["stats"]["lookups"]
        assert report["summary"]["plan_bytes"] == sum(row["bytes"] for row in report["plan"])

    def test_profile(self, run, tiny):
        outcome = run("prefill", tiny, "-p", "Hello", "--json", "--pkprof", "on")
        rows = json.loads(outcome.out)["profile"]
        assert sum(row[3] for row in rows) > 0 and any(row[0] in outcome.err for row in rows)
        assert json.loads(run("prefill", tiny, "-p", "Hello", "--json").out)["profile"] == []

    @pytest.mark.parametrize(
        ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_colour_at_a_terminal(self, variables, coloured):
        child = terminal("prefill", "--demo", **variables)
        child.expect(pexpect.EOF)
        assert bool(re.search(r"\x1b\[[0-9;]*m", child.before)) == coloured
        assert "prefill done: 7 tokens" in child.before

    def test_kld_from_stdin(self, run, tmp_path):
        text = b"Once upon a time there was a little dog."
        file = tmp_path / "text"
        file.write_bytes(text)
        args = ("kld", "--demo", "--prompt-tokens", "3", "--no-floor", "--json", "-q", "--logits-out", tmp_path / "out")
        reports = [json.loads(run(*args, "-f", name, stdin=text).out) for name in (file, "-")]
        assert reports[0] == reports[1] and reports[0]["config"]["threads"]["source"] == "default"

    @pytest.mark.parametrize(
        ("words", "offers"),
        [("strata pre", {"prefill"}), ("strata prefill --arena", {"--arena-gb", "--arena-slots"}),
         ("strata prefill --isa avx5", {"avx512", "avx512vnni"}), ("strata doctor --j", {"--json"})],
    )  # fmt: skip
    def test_completion(self, words, offers):
        last = words.split()[-1]
        env = {"_STRATA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        code = "import strata.cli; strata.cli.main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(**env))
        assert {line.split(",")[1] for line in done.stdout.splitlines()} == offers and last, done.stderr
