"""Comparisons: real ones of the demo model, and the order, reruns and stops with runs that are made up."""

import json
import os
import sys
from pathlib import Path

import pytest
import strata.ab as ab
from strata.ab import gates, report, runner, stats
from strata.ab.results import Comparison
from strata.cli.ab import main
from strata.errors import ConfigError, InputError, StrataError

pytest.importorskip("scipy")


@pytest.fixture
def quick(tmp_path):
    """Options that keep a real comparison short, and out of the way of others on this machine."""
    return {"pairs": 2, "tokens": 40, "cache": "model", "cooldown": 0, "max_wait": 0, "lock": tmp_path / "lock"}


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """Comparisons whose runs take the milliseconds that a function says; gates open unless told otherwise."""
    seen = []

    def make(ms, dirty=lambda n: False, readings=lambda: [], **options):
        def child(self, arm, job, extra=None):
            n = len(seen)
            seen.append(arm.name)
            value = ms(arm.name, n)
            return {
                "metrics": {"prefill_ms": value, "prefill_tok_s": 1e6 / value}, "logits": "same", "version": "0",
                "effective": {}, "config": {"x": [arm.name, "argument"]}, "plan_bytes": 1, "unknown": [],
                "priority": True, "window": {"before": {}, "after": {}}, "stats": {},
            }  # fmt: skip

        monkeypatch.setattr(runner._Comparer, "_child", child)
        monkeypatch.setattr(gates, "check", lambda *a, **b: readings())
        monkeypatch.setattr(gates, "contamination", lambda *a: ["dirty"] if dirty(len(seen)) else [])
        options = {"cache": "keep", "cooldown": 0, "seed": 1, "lock": tmp_path / "lock", **options}
        return ab.compare("base", "patched", **options)

    make.seen = seen
    return make


def test_order_is_a_b_b_a(made_up):
    result = made_up(lambda arm, n: 100 + n % 3, pairs=6)
    blocks = [made_up.seen[at : at + 4] for at in (2, 6, 10)]  # after one trial run of each
    a, b = ["base", "patched", "patched", "base"], ["patched", "base", "base", "patched"]
    assert all(block in (a, b) for block in blocks) and a in blocks and b in blocks
    assert [r.order for r in result.runs] == list(range(12)) and all(r.counted for r in result.runs)


def test_three_arms_go_forth_and_back(made_up, monkeypatch, tmp_path):
    made_up(lambda arm, n: 100.0, pairs=2)
    made_up.seen.clear()
    result = ab.compare("base", "patched", "c:IO_THREADS=2", pairs=2, cache="keep", cooldown=0, lock=tmp_path / "lock")
    seen = made_up.seen[3:]
    assert sorted(seen[:3]) == ["base", "c", "patched"] and seen[3:] == seen[2::-1] and seen[1] == "patched"
    assert result.alpha == pytest.approx(stats.ALPHA / 2)  # two candidates share the error rate


def test_contaminated_rounds_are_marked_and_made_again(made_up):
    """Runs 5 and 6 are dirty: their rounds do not count, others take their places."""
    result = made_up(lambda arm, n: 100.0 + n, dirty=lambda n: n in (5, 6), pairs=4)
    marked = [r for r in result.runs if r.contaminated]
    assert len(marked) == 2 and not any(r.counted for r in marked)
    assert len(result.counted("base")) == len(result.counted("patched")) == 4
    assert sum(not r.counted for r in result.runs) == 2  # both runs of one round


def test_reruns_end(made_up):
    result = made_up(lambda arm, n: 100.0, dirty=lambda n: True, pairs=3)
    assert len(result.counted("base")) == 3 and len(result.runs) == 2 * (3 + 3 * runner.RERUNS)
    assert any("not quiet" in note for note in result.notes)


def test_a_clear_difference_stops_early(made_up):
    result = made_up(lambda arm, n: (100 if arm == "base" else 130) + n % 5, pairs=40)
    assert len(result.log_ratios("patched")) < 40 and "excludes" in result.stopped
    assert result.verdict("patched").kind == "different" and "worse" in result.sentence("patched")


def test_equal_arms_stop_early_without_a_difference(made_up):
    result = made_up(lambda arm, n: 100 + 0.01 * (n * 7 % 5), pairs=40)
    assert "within" in result.stopped and "no difference shown" in result.sentence("patched")


def test_time_is_up(made_up, monkeypatch):
    result = made_up(lambda arm, n: 100 + (n * 37 % 11), pairs=40, max_minutes=0)
    assert result.stopped.startswith("the time") and len(result.log_ratios("patched")) == 1
    assert result.verdict("patched").kind == "too few pairs"


def test_time_is_up_on_a_machine_that_is_never_quiet(made_up, monkeypatch):
    """With next to no clean pair all count, and the report says so."""
    clock = iter(range(0, 100000, 3))
    monkeypatch.setattr(runner.time, "monotonic", lambda: float(next(clock)))
    result = made_up(lambda arm, n: 100 + (n * 37 % 11), dirty=lambda n: n > 6, max_minutes=4)
    assert result.stopped.startswith("the time") and len(result.log_ratios("patched")) > 6
    assert all(r.counted for r in result.runs) and result.final_level == pytest.approx(stats.ALPHA)
    assert any("not quiet" in note for note in result.notes)


@pytest.mark.parametrize(("state", "text"), [("refuse", "battery"), ("wait", "memory")])
def test_gates_that_do_not_open(made_up, state, text):
    shut = [gates.Reading(text, state, "says no")]
    with pytest.raises(StrataError, match=text):
        made_up(lambda arm, n: 1.0, readings=lambda: shut, max_wait=0, pairs=1)
    result = made_up(lambda arm, n: 1.0, readings=lambda: shut, max_wait=0, pairs=1, force=True)
    assert len(result.runs) == 2


def test_waits_then_goes_on_or_gives_up(made_up):
    shut = [gates.Reading("busy", "wait", "others compute")]
    opens = iter([shut, shut, []])
    assert made_up(lambda arm, n: 1.0, readings=lambda: next(opens, []), pairs=1).notes == []
    result = made_up(lambda arm, n: 1.0, readings=lambda: shut, max_wait=0, pairs=1)
    assert any("went on although" in note for note in result.notes)
    with pytest.raises(StrataError, match="others compute"):
        made_up(lambda arm, n: 1.0, readings=lambda: shut, max_wait=0, pairs=1, strict=True)


def test_what_could_not_be_checked_is_said(made_up):
    unknown = [gates.Reading("thermal", "unknown", "no thermal zone can be read")]
    result = made_up(lambda arm, n: 1.0, readings=lambda: unknown, pairs=1)
    assert "not checked: thermal (no thermal zone can be read)" in result.notes
    assert "not checked: thermal" in report.to_text(result)


def test_saved_and_read_again(made_up, tmp_path):
    """The reports come from the raw runs: read again they are the same."""
    result = made_up(lambda arm, n: 100 + (n * 37 % 11), pairs=7)
    result.save(tmp_path / "r.json")
    again = ab.load(tmp_path / "r.json")
    assert again == result
    assert report.to_markdown([again]) == report.to_markdown([result])
    data = json.loads((tmp_path / "r.json").read_text())
    data["worked_out"] = "changed by hand"
    assert report.to_text(Comparison.from_json(data)) == report.to_text(result)
    for broken in ({}, {"schema": 99}, {**data, "runs": [{}]}, []):
        with pytest.raises(InputError):
            Comparison.from_json(broken)


def test_json_follows_its_schema(made_up, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(ab.__file__).parent / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for pairs in (1, 8):
        result = made_up(lambda arm, n: 100 + (n * 37 % 11), pairs=pairs)
        result.save(tmp_path / "r.json")
        data = json.loads((tmp_path / "r.json").read_text(), parse_constant=lambda name: pytest.fail(name))
        jsonschema.validate(data, schema)
        jsonschema.validate({"schema": 1, "comparisons": [data, data]}, schema)
        del data["runs"][0]["logits"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data, schema)


def test_a_real_comparison(quick, capsys):
    """The demo model, both presets, fresh processes; the dumps are compared."""
    result = ab.compare("base", "patched", dump=True, decode=3, **quick)
    assert len(result.log_ratios("patched")) == 2 and result.logits_equal("patched") is True
    assert result.dumps["patched"]["equal"] and result.dumps["patched"]["values"] > 0
    run = result.runs[0]
    assert {"prefill_ms", "decode_tok_s", "bytes_read", "missed", "peak_rss", "load_ms"} <= set(run.metrics)
    assert run.metrics["prefill_tok_s"] == pytest.approx(40 / run.metrics["prefill_ms"] * 1e3)
    assert result.arms[0].config["prompt_pred"] == [0, "STRATA_PROMPT_PRED"]
    assert result.arms[0].effective["arena_slots"] == runner.DEMO_SLOTS
    if sys.platform == "linux":
        assert run.foreign_share is not None and run.metrics["device_bytes"] > 0


def test_an_arm_with_other_bits_is_told(quick, tmp_path, capsys):
    """kv_type changes the last digits of the logits: exit code 3."""
    with pytest.raises(SystemExit) as caught:
        main(["a:KV_TYPE=f16", "b:KV_TYPE=f32", "--pairs", "1", "--tokens", "40", "--cache", "model", "--max-wait", "0",
              "--dump", "-q", "--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"),
              "--markdown", str(tmp_path / "r.md")])  # fmt: skip
    out = capsys.readouterr().out
    assert caught.value.code == 3 and "logits of a and b: DIFFER" in out and "dumps of a and b DIFFER" in out
    assert "DIFFER" in (tmp_path / "r.md").read_text() and "DIFFER" in (tmp_path / "r.html").read_text()
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path / "r.json"), str(tmp_path / "r.json"), "--json", str(tmp_path / "m.json")])
    assert caught.value.code == 0 and len(json.loads((tmp_path / "m.json").read_text())["comparisons"]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path / "m.json"), "--markdown", str(tmp_path / "m.md")])
    assert caught.value.code == 0 and (tmp_path / "m.md").read_text().count("### b against a") == 2


def test_an_arm_that_fails(quick):
    with pytest.raises(StrataError, match=r"arm b: ConfigError.*isa"):
        ab.compare("patched", "b:ISA=neon" if os.uname().machine == "x86_64" else "b:ISA=avx2", **quick)


def test_another_build_and_a_knob_it_lacks(quick, monkeypatch):
    """A Python with this very build on its path stands for another build."""
    package = str(Path(ab.__file__).parents[2])
    monkeypatch.setattr(runner, "clean_env", lambda: {**os.environ, "PYTHONPATH": package})
    result = ab.compare("patched", f"old:python={sys.executable},IO_THREADS=2", **quick)
    assert result.arms[1].build.startswith("python=")
    with pytest.raises(InputError, match="STRATA_NEW_KNOB is no knob"):
        ab.compare("patched", f"old:python={sys.executable},NEW_KNOB=2", **quick)


@pytest.mark.parametrize(
    ("arms", "options", "error"),
    [
        (["base"], {}, InputError),
        (["base", "patched"], {"metric": "speed"}, InputError),
        (["base", "patched"], {"pairs": 0}, InputError),
        (["base", "patched"], {"speed": 1}, InputError),
        (["base", "patched"], {"model": "no.gguf"}, InputError),
        (["base", "patched"], {"knobs": {"PROMPT_PRED": 1}}, InputError),
        (["base", "patched"], {"knobs": {"PROMPT_PERD": 1}}, ConfigError),
    ],
)
def test_refused(arms, options, error, tmp_path):
    with pytest.raises(error):
        ab.compare(*arms, lock=tmp_path / "lock", **options)
