"""strata ssd: which reads it makes, its arithmetic by hand, what it keeps and when it believes it."""

import contextlib
import errno
import json
import mmap
import os
import threading

import pytest
import strata.cli
from strata import InputError, StrataError, ssd

SIZE = 8192


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache") / "ssd"
    monkeypatch.setattr(ssd, "folder", lambda: folder)
    return folder


@pytest.fixture
def file(tmp_path):
    """Ten reads of SIZE, and a rest that is none."""
    path = tmp_path / "drive.bin"
    path.write_bytes(os.urandom(10 * SIZE + 100))
    return path


@pytest.fixture
def reads(monkeypatch):
    """The reads of a probe: (offset, bytes, thread). The first one of all is the trial of O_DIRECT."""
    made, real = [], os.preadv

    def preadv(fd, buffers, offset):
        made.append((offset, len(buffers[0]), threading.get_ident()))
        assert isinstance(buffers[0], mmap.mmap)  # aligned to pages, as direct reads must be
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return made


@pytest.fixture
def direct(monkeypatch):
    """A file system that takes O_DIRECT, whatever the one under the tests is."""
    monkeypatch.setattr(os, "O_DIRECT", 0x40000000, raising=False)
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *rest: real(path, flags & ~0x40000000, *rest))


def test_each_place_once_in_random_order(file, reads, direct):
    result = ssd.probe(file, size=SIZE - 5, threads=[1, 3], seconds=0.2)  # rounded up to blocks of 4096
    places = [offset for offset, count, _ in reads[1:]]
    assert {count for _, count, _ in reads[1:]} == {SIZE} and result.size == SIZE
    every = [SIZE * i for i in range(10)]
    assert sorted(places[:10]) == every and places[:10] != every
    assert sum(r.reads for r in result.rates) == len(places)
    assert [r.bytes for r in result.rates] == [r.reads * SIZE for r in result.rates]
    assert result.repeated == (len(places) > 10) and result.bypassed and result.file_bytes == 10 * SIZE + 100


def test_threads_read_side_by_side(file, monkeypatch, direct):
    """Each read waits for three others: with fewer threads, or reads one after another, the barrier would break."""
    barrier = threading.Barrier(4)

    def preadv(fd, buffers, offset):
        if threading.current_thread() is not threading.main_thread():
            barrier.wait(20)
        return len(buffers[0])

    monkeypatch.setattr(os, "preadv", preadv)
    # Seconds so few that every thread reads once.
    result = ssd.probe(file, size=SIZE, threads=[4], seconds=1e-9)
    assert result.rates[0].reads == 4 * ssd.ROUNDS and not barrier.broken


def test_figures_by_hand(file, monkeypatch, direct):
    """A clock that goes on by 1 s at every look: start; then for each read began, ended, and is it over yet."""
    now = iter(range(1000))
    monkeypatch.setattr(ssd.time, "perf_counter", lambda: float(next(now)))
    (rate,) = ssd.probe(file, size=SIZE, threads=[1], seconds=40).rates
    # Four rounds of 10 s each. start 0; reads over at 3, 6, 9, 12, the last one past 10; the final look 13.
    assert (rate.reads, rate.seconds) == (4 * 4, 4 * 13)
    assert (rate.p50, rate.p90, rate.p99, rate.max) == (1000, 1000, 1000, 1000)
    assert rate.gb_per_second == 4 * SIZE / 1e9 / 13


def test_thread_counts_take_turns(file, monkeypatch, direct):
    """Back and forth, so that a drive's best moment does not fall on one of them; the results are in order."""
    turns = []
    monkeypatch.setattr(ssd, "_measure", lambda fd, size, n, seconds, walk: turns.append((n, seconds)) or (n, [0.5]))
    rates = ssd.probe(file, size=SIZE, threads=[1, 2, 4], seconds=12).rates
    assert turns == [(n, 1.0) for n in (4, 2, 1, 1, 2, 4, 4, 2, 1, 1, 2, 4)]
    assert [(r.threads, r.reads, r.seconds) for r in rates] == [(1, 4, 4), (2, 4, 8), (4, 4, 16)]


def test_the_best_rate():
    rates = tuple(ssd.Rate(n, 1, b, 2.0, 1, 1, 1, 1) for n, b in ((1, 4 * 10**9), (2, 9 * 10**9), (4, 8 * 10**9)))
    best = ssd.Probe("x", 1, 1, True, False, rates).best
    assert (best.threads, best.gb_per_second) == (2, 4.5)


def test_nothing_is_written_to_a_file(file):
    before = file.read_bytes(), file.stat().st_mtime_ns, sorted(file.parent.iterdir())
    ssd.probe(file, size=SIZE, threads=[2], seconds=0.05)
    assert before == (file.read_bytes(), file.stat().st_mtime_ns, sorted(file.parent.iterdir()))


def test_a_system_without_direct_reads(file, monkeypatch, direct):
    """The trial read is refused: it reads plainly, says so, and the result is not kept."""
    real, first = os.preadv, []

    def preadv(fd, buffers, offset):
        if not first:
            first.append(1)
            raise OSError(errno.EINVAL, "no")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    result = ssd.probe(file, size=SIZE, threads=[1], seconds=0.01)
    assert not result.bypassed and result.rates[0].reads > 0
    with pytest.raises(StrataError, match="page cache"):
        ssd.save(result)


def test_a_failing_drive(file, monkeypatch, direct):
    def preadv(fd, buffers, offset):
        if threading.current_thread() is threading.main_thread():
            return len(buffers[0])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(OSError, match="Input/output error"):
        ssd.probe(file, size=SIZE, threads=[4], seconds=60)


def test_too_small_a_file(file):
    with pytest.raises(InputError, match="less than one read"):
        ssd.probe(file, size=11 * SIZE)


def test_no_file(tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/null"):
        with pytest.raises(InputError, match="is no file"):
            ssd.probe(path)
    code, _, err = run(capsys, pipe)
    assert code == 1 and f"{pipe} is no file" in err
    with pytest.raises(OSError, match="none"):
        ssd.probe(tmp_path / "none")


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_the_temporary_file_goes(tmp_path, ends):
    outcome = pytest.raises(ZeroDivisionError) if ends == "badly" else contextlib.nullcontext()
    with outcome, ssd.scratch(tmp_path, size=40 << 20, seconds=1e9) as path:
        assert path.parent == tmp_path
        assert path.stat().st_size == 32 << 20  # whole pieces of 16 MB
        assert path.read_bytes()[:1000].count(0) < 100  # not blank: a drive may shrink blanks
        if ends == "badly":
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_slow_drive_gets_a_smaller_file(tmp_path):
    with ssd.scratch(tmp_path, seconds=0) as path:
        assert path.stat().st_size == 16 << 20


def test_read_size_of_a_model(tiny, file):
    """An expert of the tiny model: three matrices of 64 x 24 in F16."""
    assert ssd.read_size(tiny) == 3 * 64 * 24 * 2
    assert ssd.read_size(file) == ssd.read_size(file.parent) == 1_408_000
    file.write_bytes(b"GGUF and then nothing")
    with pytest.raises(strata.ModelFormatError):
        ssd.read_size(file)


def kept(file):
    rate = ssd.Rate(8, 10, 10 * SIZE, 0.5, 1.0, 2.0, 3.0, 4.0)
    return ssd.save(ssd.Probe(str(file), file.stat().st_size, SIZE, True, False, (rate,)))


def test_kept_for_the_volume(file, tmp_path, cache_folder):
    assert ssd.cached(file) is None
    path = kept(file)
    assert path.parent == cache_folder
    want = 10 * SIZE / 1e9 / 0.5
    assert ssd.cached(file) == ssd.cached(tmp_path) == want  # any file of the volume
    assert ssd.cached(tmp_path / "none") is None
    assert [p.name for p in cache_folder.iterdir()] == [f"{os.stat(file).st_dev:x}.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: b"",
        lambda c: b"{",
        lambda c: b"\xff\xfe\x00",
        lambda c: b"[" * 100_000,
        lambda c: b"[]",
        lambda c: json.dumps(c)[:-20].encode(),
        lambda c: json.dumps(c | {"version": 1}).encode(),
        lambda c: json.dumps(c | {"gb_per_second": "fast"}).encode(),
        lambda c: json.dumps(c | {"gb_per_second": float("nan")}).encode(),
        lambda c: json.dumps(c | {"gb_per_second": -1}).encode(),
        lambda c: json.dumps(c | {"gb_per_second": 10**400}).encode(),
        lambda c: json.dumps(c | {"volume": c["volume"] | {"bytes": 1}}).encode(),
        lambda c: json.dumps({k: v for k, v in c.items() if k != "volume"}).encode(),
        lambda c: json.dumps(c | {"rates": []}).encode(),
        lambda c: json.dumps(c | {"rates": [c["rates"][0] | {"seconds": 0}]}).encode(),
        lambda c: json.dumps(c | {"rates": [c["rates"][0] | {"threads": 10**9}]}).encode(),
    ],
)
def test_a_damaged_result_does_not_count(file, damage):
    path = kept(file)
    content = json.loads(path.read_bytes())
    path.write_bytes(json.dumps(content).encode())
    assert ssd.cached(file) is not None and ssd.readers(file) == 8
    path.write_bytes(damage(content))
    assert ssd.cached(file) is None and ssd.readers(file) is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "huge"])
def test_what_is_no_result_is_not_waited_for(file, kind):
    path = kept(file)
    path.unlink()
    if kind == "huge":
        with path.open("wb") as out:
            out.truncate(1 << 40)
    else:
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    assert ssd.cached(file) is None and ssd.readers(file) is None


def test_what_the_system_does_not_give(file, monkeypatch, direct):
    """No memory for a thread's buffer, and no further thread: an error, not figures of fewer threads."""
    real, asked = mmap.mmap, []

    def buffers(fd, size):
        asked.append(size)
        if len(asked) == 4:  # the first one is the trial of direct reads
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(fd, size)

    monkeypatch.setattr(ssd.mmap, "mmap", buffers)
    with pytest.raises(OSError, match="allocate memory"):
        ssd.probe(file, size=SIZE, threads=[4], seconds=0.1)
    monkeypatch.setattr(ssd.mmap, "mmap", real)

    class Third(threading.Thread):
        started = 0

        def start(self):
            Third.started += 1
            if Third.started == 3:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(ssd.threading, "Thread", Third)
    with pytest.raises(StrataError, match="no 4 threads"):
        ssd.probe(file, size=SIZE, threads=[4], seconds=60)


@pytest.mark.parametrize(
    ("speeds", "want"),
    [
        ({1: 90, 2: 98, 4: 100, 8: 100}, 4),  # 2 threads would do; fewer than 4 are not taken
        ({1: 10, 2: 20, 4: 40, 8: 80, 16: 98, 32: 100}, 16),  # within 3 %
        ({1: 10, 2: 20, 4: 40, 8: 80, 16: 96, 32: 100}, 32),
        ({1: 50, 8: 100, 32: 60}, 8),
    ],
)
def test_readers_by_the_probe(tiny, speeds, want):
    """Automatic io_threads are the probe's; a number that was given stays."""
    with strata.load(tiny) as model:
        assert model.effective["io_threads"] == 4  # nothing is known of the drive
    rates = tuple(ssd.Rate(n, 10, speed * 10**6, 1.0, 1.0, 2.0, 3.0, 4.0) for n, speed in speeds.items())
    ssd.save(ssd.Probe(str(tiny), os.stat(tiny).st_size, SIZE, True, False, rates))
    with strata.load(tiny) as model:
        assert model.effective["io_threads"] == want
    with strata.load(tiny, io_threads=3) as model:
        assert model.effective["io_threads"] == 3


def run(capsys, *args):
    with pytest.raises(SystemExit) as caught:
        strata.cli.main(["ssd", *map(str, args)])
    return caught.value.code, *capsys.readouterr()


def test_the_command(file, capsys, direct, monkeypatch, cache_folder):
    monkeypatch.setattr(ssd, "SECONDS", 0.1)
    monkeypatch.setattr(ssd, "EXPERT_BYTES", SIZE)
    code, out, _ = run(capsys, file, "--json")
    report = json.loads(out)
    assert code == 0 and [r["threads"] for r in report["rates"]] == [1, 2, 4, 8, 16, 32]
    assert report["best"]["gb_per_second"] == max(r["gb_per_second"] for r in report["rates"]) == ssd.cached(file)
    assert report["kept"] == str(next(cache_folder.iterdir())) and report["path"] == str(file)
    assert report["io_threads"] == ssd.readers(file)

    before = ssd.cached(file)
    code, out, _ = run(capsys, file, "--threads", "2,5", "--seconds", "0.1", "--size", "4k")
    assert code == 0 and "best: " in out and "0.00 MB" in out
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["2", "5"]
    assert ssd.cached(file) == before and "io_threads" not in out  # not the usual probe
    assert run(capsys, file, "--threads", "0,1")[0] == 2 and run(capsys, file, "--threads", "x")[0] == 2


def test_the_command_on_a_folder(tmp_path, capsys, direct, monkeypatch):
    monkeypatch.setattr(ssd, "SCRATCH_SECONDS", 0.0)
    monkeypatch.setattr(ssd, "SECONDS", 0.1)
    code, out, err = run(capsys, tmp_path, "--json")
    assert code == 0 and json.loads(out)["file_bytes"] == 16 << 20
    assert "writing a temporary file" in err and "removed" in err
    assert list(tmp_path.iterdir()) == []
    assert ssd.cached(tmp_path) == json.loads(out)["best"]["gb_per_second"]
