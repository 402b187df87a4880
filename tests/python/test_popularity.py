"""What earlier runs learnt: kept by fingerprint, given back, ignored when it is not sound; never a bit changed."""

import os
import shutil
import zipfile

import numpy as np
import pytest
import strata
from strata import ConfigError, InputError, popularity

SMALL = {"context": 512, "arena_slots": 96, "prompt_sweep": 64, "prompt_chunk": 64}
SHAPE = (8, 48)  # of the demo model


@pytest.fixture
def demo():
    return strata.demo_path()


def prompt(n=128):
    return np.random.default_rng(n).integers(0, 3000, n).astype(np.int32)


def kept():
    folder = popularity.folder()
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_a_run_learns_and_the_next_one_knows(demo):
    with strata.load(demo, **SMALL) as model:
        first = model.prefill(prompt())
    (name,) = kept()
    assert name == popularity.fingerprint(demo) + ".npz"
    shares = popularity.read(popularity.folder() / name, SHAPE)
    # Each row uses the same number of experts in each layer: so shares of a layer sum to it.
    used = model.info["n_expert_used"]
    assert np.abs(shares.sum(1) - used).max() < 1e-3 and shares.std(1).min() > 0
    # By hand: guesses come from popularity alone; where nobody is popular there are none, where all are they cover all.
    nobody = popularity.folder().parent / "nobody.npz"
    popularity.write(nobody, np.zeros(SHAPE))
    popularity.write(everybody := nobody.with_name("everybody.npz"), np.ones(SHAPE))
    results = {}
    for file in (popularity.folder() / name, nobody, everybody):
        with strata.load(demo, popularity=file, prompt_pred=0, **SMALL) as model:
            assert np.array_equal(model._core.popularity(), popularity.read(file, SHAPE))
            results[file] = model.prefill(prompt(4))
    ahead = [r.stats["ahead"] for r in results.values()]
    assert ahead[1] == 0 and ahead[2] == results[everybody].stats["lookups"] > ahead[0] > 0
    same = strata.prefill(demo, prompt(4), popularity="off", prompt_pred=-1, **SMALL)
    assert {r.logits.tobytes() for r in results.values()} == {same.logits.tobytes()}
    assert first.logits.tobytes() == strata.prefill(demo, prompt(), popularity="off", **SMALL).logits.tobytes()


@pytest.mark.parametrize(
    "damage", ["empty", "cut", "flipped", "shape", "nan", "negative", "version", "npy", "method", "pickle"]
)
def test_unsound_files_are_as_good_as_none(demo, tmp_path, damage):
    file = tmp_path / "p.npz"
    popularity.write(file, np.full(SHAPE, 0.5))
    whole = file.read_bytes()
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        at = zipfile.ZipFile(file).getinfo("shares.npy").header_offset + 60
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    elif damage == "shape":
        popularity.write(file, np.full((8, 47), 0.5))
    elif damage == "nan":
        popularity.write(file, np.full(SHAPE, np.nan))
    elif damage == "negative":
        popularity.write(file, np.full(SHAPE, -0.1))
    elif damage == "version":
        np.savez(file, version=np.int64(99), shares=np.full(SHAPE, 0.5, np.float32))
    elif damage == "npy":
        np.save(tmp_path / "x.npy", np.full(SHAPE, 0.5))
        (tmp_path / "x.npy").rename(file)
    elif damage == "method":  # a way to compress that nobody has, in the central directory
        at = whole.index(b"PK\x01\x02")
        file.write_bytes(whole[: at + 10] + b"\x63\x00" + whole[at + 12 :])
    else:
        np.savez(file, version=np.int64(1), shares=np.full(SHAPE, None, object))
    assert popularity.read(file, SHAPE) is None
    if damage == "npy":  # not of this kind at all: left alone
        with pytest.raises(ConfigError, match="something else"):
            strata.load(demo, popularity=file, **SMALL)
        return
    with strata.load(demo, popularity=file, **SMALL) as model:
        assert np.ptp(model._core.popularity()) == 0  # equal shares, as without a file
        model.prefill(prompt(64))
    assert popularity.read(file, SHAPE) is not None  # and replaced by what was learnt


def test_off_and_fake_leave_nothing(demo):
    strata.prefill(demo, prompt(16), popularity="off", **SMALL)
    strata.prefill(demo, prompt(16), stream_fake=True, **SMALL)
    assert kept() == []


def test_fingerprints(demo, tmp_path):
    """The same wherever it lies; another when a byte at a sampled place changed, or when it is longer."""
    copy = tmp_path / "copy.gguf"
    shutil.copy(demo, copy)
    assert popularity.fingerprint(copy) == popularity.fingerprint(demo)
    with copy.open("r+b") as f:
        f.seek(demo.stat().st_size // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))
    assert popularity.fingerprint(copy) != popularity.fingerprint(demo)
    shutil.copy(demo, copy)
    with copy.open("ab") as f:
        f.write(b"\0")
    assert popularity.fingerprint(copy) != popularity.fingerprint(demo)


def test_a_folder_that_cannot_be_written(demo, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with strata.load(demo, popularity=tmp_path / "file" / "p.npz", **SMALL) as model:
        with pytest.warns(UserWarning, match="not kept"):
            model.prefill(prompt(16))
        model.prefill(prompt(16))  # said once


def test_wrong_arrays(demo):
    with strata.load(demo, popularity="off", **SMALL) as model:
        for shares, what in (
            (np.zeros((8, 47)), "376 values"),
            (np.full(SHAPE, 1.5), "between"),
            (np.full(SHAPE, np.nan), "between"),
        ):
            with pytest.raises(InputError, match=what):
                model._core.set_popularity(shares)


def test_another_file_is_not_replaced(demo, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(demo, model)
    with pytest.raises(ConfigError, match="something else"):
        strata.load(model, popularity=model)
    assert model.read_bytes() == demo.read_bytes()


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_no_file_is_not_replaced(demo, tmp_path, kind):
    """Nor waited for: a pipe that nobody writes into."""
    place = tmp_path / kind
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    with pytest.raises(ConfigError, match="something else"):
        strata.load(demo, popularity=place)
    kept = popularity.folder() / f"{popularity.fingerprint(demo)}.npz"
    kept.parent.mkdir(parents=True)
    os.mkfifo(kept)
    assert popularity.read(kept, SHAPE) is None


def test_loading_alone_keeps_nothing(demo):
    strata.load(demo, **SMALL).close()
    assert kept() == []
