"""Each gate fires: on a real busy process, a real memory limit, and on machines made of files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from strata.ab import gates
from strata.errors import StrataError

psutil = pytest.importorskip("psutil")

ZONE = "/sys/class/thermal/thermal_zone0"
POLICY = "/sys/devices/system/cpu/cpufreq/policy0"


def system(root, **limits):
    return gates.System(root=root, limits=gates.Limits(**limits), platform="linux")


def test_a_busy_process_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinner:
        try:
            os.setpriority(os.PRIO_PROCESS, spinner.pid, 0)
            time.sleep(0.3)
            reading = gates.busy(gates.System(limits=gates.Limits(busy_cores=0.05)), 0.5)
        finally:
            spinner.kill()
    assert reading.state == "wait" and "cores" in reading.text


def test_own_processes_are_not_others(monkeypatch):
    """The heaviest other process is named; ours, left out of the scan, do not count."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinner:
        try:
            time.sleep(0.3)
            # A root that is not the machine's keeps the rest of the machine out of the sum.
            only = [psutil.Process(spinner.pid)]
            monkeypatch.setattr(psutil, "process_iter", lambda attrs: _with_info(only))
            fake = gates.System(root=Path("/nonexistent"), limits=gates.Limits(busy_cores=0.05))
            reading = gates.busy(fake, 0.4)
            assert reading.state == "wait" and f"process {spinner.pid} " in reading.text
            assert gates.busy(fake, 0.4, frozenset({spinner.pid})).state == "ok"
        finally:
            spinner.kill()


def _with_info(processes):
    for p in processes:
        p.info = {"pid": p.pid, "name": p.name(), "cpu_times": p.cpu_times()}
        yield p


def test_battery(fake_root):
    supply = "/sys/class/power_supply"
    root = fake_root({f"{supply}/AC/type": "Mains\n", f"{supply}/BAT0/type": "Battery\n",
                      f"{supply}/BAT0/status": "Discharging\n", f"{supply}/BAT0/capacity": "63\n"})  # fmt: skip
    reading = gates.battery(system(root))
    assert reading.state == "refuse" and "63 %" in reading.text
    fake_root({f"{supply}/BAT0/status": "Charging\n"})
    assert gates.battery(system(root)).state == "ok"


def test_no_battery_and_no_sensor_are_told_apart(fake_root, tmp_path):
    assert gates.battery(system(fake_root({"/sys/class/power_supply/AC/type": "Mains"}))).state == "ok"
    assert gates.battery(system(tmp_path / "nothing")).state == "unknown"
    assert gates.thermal(system(tmp_path / "nothing")).state == "unknown"
    assert gates.frequency(system(tmp_path / "nothing")).state == "unknown"


def test_thermal(fake_root):
    root = fake_root({f"{ZONE}/temp": "97000\n", f"{ZONE}/type": "x86_pkg_temp\n"})
    reading = gates.thermal(system(root))
    assert reading.state == "wait" and "x86_pkg_temp at 97" in reading.text
    fake_root({f"{ZONE}/temp": "61000\n"})
    assert gates.thermal(system(root)).state == "ok"
    # A passive trip point at 64 degrees: throttling is near already at 61.
    fake_root({f"{ZONE}/trip_point_0_type": "passive\n", f"{ZONE}/trip_point_0_temp": "64000\n"})
    assert gates.thermal(system(root)).state == "wait"
    # A second zone that gives nonsense is passed over.
    fake_root({f"{ZONE}/temp": "40000\n", "/sys/class/thermal/thermal_zone1/temp": "-274000\n"})
    assert gates.thermal(system(root)).state == "ok"


def test_frequency(fake_root):
    files = {f"{POLICY}/cpuinfo_max_freq": "4000000", f"{POLICY}/scaling_max_freq": "4000000",
             f"{POLICY}/scaling_governor": "schedutil", f"{POLICY}/scaling_driver": "acpi-cpufreq"}  # fmt: skip
    root = fake_root(files)
    assert gates.frequency(system(root)).state == "ok"
    fake_root({f"{POLICY}/scaling_max_freq": "2200000"})
    reading = gates.frequency(system(root))
    assert reading.state == "wait" and "2.20 of 4.00 GHz" in reading.text
    fake_root({f"{POLICY}/scaling_max_freq": "4000000", f"{POLICY}/scaling_governor": "powersave"})
    assert gates.frequency(system(root)).state == "refuse"
    fake_root({f"{POLICY}/scaling_driver": "intel_pstate"})
    assert gates.frequency(system(root)).state == "ok"


def test_swap(fake_root):
    root = fake_root({"/proc/vmstat": "nr_free_pages 5\npswpin 100\npswpout 50\n"})
    s = system(root)
    before = gates.vmstat(s)
    assert gates.swap(s, before, gates.vmstat(s)).state == "ok"
    fake_root({"/proc/vmstat": "pswpin 400\npswpout 250\n"})
    reading = gates.swap(s, before, gates.vmstat(s))
    assert reading.state == "wait" and "500 pages" in reading.text
    assert gates.swap(s, {}, {}).state == "unknown"


def test_memory_of_the_machine(fake_root):
    root = fake_root({"/proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable:  1000000 kB\n"})
    assert gates.memory(system(root), 600 << 20).state == "ok"
    reading = gates.memory(system(root), 900 << 20)
    assert reading.state == "wait" and "1024 MB available in the machine" in reading.text


def test_memory_of_a_control_group(fake_root):
    """The tightest group above the process counts; inactive file pages are room."""
    root = fake_root({
        "/proc/meminfo": "MemAvailable:  16000000 kB\n",
        "/proc/self/cgroup": "0::/user/app\n",
        "/sys/fs/cgroup/user/app/memory.max": "max\n",
        "/sys/fs/cgroup/user/app/memory.current": "1000\n",
        "/sys/fs/cgroup/user/memory.max": "2000000000\n",
        "/sys/fs/cgroup/user/memory.current": "1900000000\n",
        "/sys/fs/cgroup/user/memory.stat": "anon 5\ninactive_file 300000000\n",
    })  # fmt: skip
    reading = gates.memory(system(root), 100 << 20)
    assert reading.state == "ok" and "400 MB available in the control group /user" in reading.text
    assert gates.memory(system(root), 200 << 20).state == "wait"


def _memory_groups() -> Path | None:
    """Folder of the version 1 memory controller when groups can be made in it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines() if Path("/proc/self/cgroup").exists() else []:
        _, controllers, path = line.split(":", 2)
        folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
        if "memory" in controllers.split(",") and os.access(folder, os.W_OK):
            return folder
    return None


@pytest.mark.skipif(
    _memory_groups() is None, reason="needs a version 1 memory controller with the right to make groups"
)
def test_a_real_memory_limit():
    """A child in a group of 200 MB: the gate sees the group's room, and lets 1 GB wait."""
    group = _memory_groups() / f"strata-ab-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
        code = (
            "from strata.ab import gates; import sys\n"
            f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
            "s = gates.System(limits=gates.Limits(memory_margin=0))\n"
            "print(gates.memory(s, 1 << 30)); print(gates.memory(s, 20 << 20))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        low, enough = done.stdout.splitlines()
        assert "state='wait'" in low and group.name in low
        assert "state='ok'" in enough
    finally:
        group.rmdir()


def window(stat, sched, cpu):
    return {
        "before": {"stat": [0] * 8, "sched": [0, 0]},
        "after": {"stat": stat, "sched": sched},
        "cpu": cpu,
        "wall": 1,
    }


def test_contention_by_hand():
    """200 ticks of 10 ms in all, 100 idle, 10 stolen: 0.9 s busy, of which 0.5 s ours, so others took 0.4 of 2 s."""
    tick = os.sysconf("SC_CLK_TCK") / 100
    stat = [int(n * tick) for n in (80, 0, 10, 90, 10, 0, 0, 10)]
    found = gates.contention(window(stat, [3e8, 1e8], 0.5))
    assert (found.foreign, found.stolen, found.waited) == pytest.approx((0.2, 0.05, 0.25))
    assert gates.contention({"before": {}, "after": {}}) == gates.Contention()


def test_contamination(fake_root):
    root = fake_root({
        "/proc/vmstat": "pswpin 0\npswpout 0\n",
        "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
        f"{ZONE}/temp": "50000",
    })  # fmt: skip
    s = system(root, foreign_share=0.15)
    before = gates.Snapshot.take(s)

    def reasons(others=None):
        return gates.contamination(s, before, gates.Snapshot.take(s), others or gates.Contention())

    assert reasons() == []
    assert "40%" in reasons(gates.Contention(0.4, 0.0, 0.3))[0]
    assert reasons(gates.Contention(0.4, 0.0, 0.02)) == []  # others computed, and did no harm
    assert reasons(gates.Contention(0.05, 0.0, 0.6)) == []  # threads of the run waited for each other
    assert "virtual" in reasons(gates.Contention(0.0, 0.3, 0.0))[0]
    fake_root({"/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "9\n"})
    assert "throttled 5 times" in reasons()[0]
    fake_root({"/proc/vmstat": "pswpin 100\npswpout 0\n", f"{ZONE}/temp": "99000"})
    assert len(reasons()) == 3


def test_lock(tmp_path):
    path = tmp_path / "lock"
    said = []
    refused = pytest.raises(StrataError, match=f"process {os.getpid()}")
    with gates.lock(path), refused, gates.lock(path, 0.2, said.append):
        raise AssertionError("two comparisons at once")
    assert len(said) == 1
    with gates.lock(path):
        pass
