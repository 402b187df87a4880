"""strata plan: lines that can be computed by hand, plans of several machines, and plans that do not fit."""

import json

import pytest
import strata
import strata.cli
from strata import synth

LAYERS, EXPERTS, USED, VOCAB = 48, 512, 10, 248320
# Gate and up of an expert: 640 rows of 2560 in IQ2_XS; down: 2560 rows of 640 in Q2_0.
GATE, DOWN = 640 * 2560 // 256 * 74, 2560 * 640 // 64 * 18
# In the arena each part has room for the whole 4096-byte blocks that it may touch.
SLOT = 2 * 117 * 4096 + 114 * 4096


@pytest.fixture
def run(capsys):
    def call(*args):
        with pytest.raises(SystemExit) as caught:
            strata.cli.main(["plan", *map(str, args)])
        return caught.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def report(run):
    def call(*args):
        code, out, err = run(*args, "--json", "--threads", "2")
        assert code == 0 and err == "", err
        return json.loads(out)

    return call


def lines(report):
    return {row["line"]: row["bytes"] for row in report["plan"]}


def test_an_expert():
    assert (GATE, DOWN, 2 * GATE + DOWN) == (473_600, 460_800, 1_408_000)
    assert all(n * 4096 >= size + 4095 for n, size in ((117, GATE), (114, DOWN)))


def test_lines_by_hand(report, real_header):
    r = report(real_header, "--ram", "24G", "--context", "32768", "--prompt-sweep", "4096")
    plan = lines(r)
    assert r["total"] == sum(plan.values()) <= 0.9 * 24e9
    assert plan["Python and tokenizer"] == 40_000_000 + 1000 * VOCAB
    assert plan["expert arena"] == r["experts"]["arena"] * SLOT
    # Weights: everything in the file but the experts, the table and the header. Convolution taps become floats.
    table = sum(synth.table_primes(synth.spec("real"))) * 160 // 32 * 18
    experts = LAYERS * EXPERTS * (2 * GATE + DOWN)
    assert plan["resident weights"] == pytest.approx(r["file_bytes"] - experts - table, rel=0.003)
    # State, twice: 36 delta-net layers of 48 matrices [128, 128] and three rows of 10240 channels; nine rows of the
    # n-gram block.
    state = 36 * (48 * 128 * 128 + 3 * 10240) + 9 * 10240
    assert plan["session state (double)"] == pytest.approx(2 * 4 * state, rel=0.001)
    # Cache of 12 attention layers: keys and values of 2 heads of 256 in F16; a key of 128 floats for every 4 tokens.
    assert plan["KV cache"] == pytest.approx(12 * 32768 * (2 * 2 * 256 * 2 + 128 * 4 // 4), rel=0.001)


@pytest.mark.parametrize(
    "ram, total, percent, sweep, chunk, context",
    [
        ("8G", 7.2e9, 2.5, 1280, 256, 4096),
        ("16G", 14.4e9, 18.1, 9216, 1024, 32768),
        ("24G", 21.6e9, 35.5, 16384, 2048, 32768),
        ("64G", 44.2e9, 100, 16384, 2048, 32768),
    ],
)
def test_machines(report, real_header, ram, total, percent, sweep, chunk, context):
    """What the automatic sizes come to. A change here is a change of what users get."""
    r = report(real_header, "--ram", ram)
    assert r["available"] == float(ram[:-1]) * 1e9 and r["pretended"]
    assert r["total"] == pytest.approx(total, rel=0.01) and r["total"] <= r["available"]
    assert r["experts"]["percent"] == pytest.approx(percent, abs=0.5)
    assert (r["sweep"], r["chunk"], r["context"]) == (sweep, chunk, context)
    assert r["experts"]["all"] == 24576 and r["experts"]["cycle"] == 480 and r["experts"]["cycle_fits"]
    assert r["experts"]["cycle_bytes"] == 480 * 1_408_000


def test_more_memory_is_never_a_smaller_arena(report, real_header):
    arenas = [report(real_header, "--ram", f"{gb}G")["experts"]["arena"] for gb in (8, 12, 16, 24, 32, 48, 64, 128)]
    assert arenas == sorted(arenas) and arenas[-1] == LAYERS * EXPERTS


def test_knobs(report, real_header, monkeypatch):
    monkeypatch.setenv("STRATA_PROMPT_CHUNK", "512")
    r = report(real_header, "--ram", "32G", "--arena-gb", "5", "--kv-type", "f32")
    assert r["experts"]["arena"] == int(5e9 // SLOT)
    assert r["config"]["prompt_chunk"] == {"value": 512, "source": "STRATA_PROMPT_CHUNK"}
    assert r["config"]["kv_type"] == {"value": "f32", "source": "argument"}
    assert r["config"]["context"] == {"value": 32768, "source": "automatic"}
    f16 = report(real_header, "--ram", "32G", "--arena-gb", "5")
    assert lines(r)["KV cache"] == pytest.approx(2 * lines(f16)["KV cache"], rel=0.06)


def test_text(run, real_header):
    code, out, err = run(real_header, "--ram", "24G", "--arena-gb", "0.5")
    assert code == 0 and err == ""
    text = " ".join(out.split())
    assert "expert arena 498.89 MB total" in text  # 350 slots
    assert "available: 24.00 GB (pretended)" in text
    assert "the arena holds 350 of 24576 (1.4 %)" in text
    assert "one token uses 480 experts (675.84 MB); more than the arena holds" in text
    assert "sweeps of 16384 tokens in chunks of 2048, context 32768" in text
    assert "chosen:" in text and "arena_gb = 0.4988928 (argument)" in text and "automatic: " in text


def test_this_machine(run):
    code, out, _ = run(strata.demo_path())
    assert code == 0 and "the arena holds 384 of 384 (100.0 %)" in out and "on this machine now" in out


def test_does_not_fit(run, real_header):
    code, out, err = run(real_header, "--ram", "4G")
    assert code == 1 and out == ""
    assert "resident weights" in err and "error: the memory plan needs 6.2" in err.splitlines()[-1]
    code, _, err = run(real_header, "--ram", "24G", "--arena-gb", "0.001")
    assert code == 1 and "arena_gb" in err.splitlines()[-1]


@pytest.mark.parametrize("args", [("--ram", "much"), ("--ram", "0"), ("--ram", "8G", "--ram-gb", "8")])
def test_wrong_usage(run, real_header, args):
    code, _, err = run(real_header, *args)
    assert code == 2 and "Error" in err
