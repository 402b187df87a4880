"""Runs a comparison: rounds of all arms in turn, A B B A or B A A B, each run in a fresh process on a cold cache."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strata import _core
from strata.ab import coldcache, dumps, gates, stats
from strata.ab.arms import Arm, Interpreter, clean_env, parse_arms, prepare
from strata.ab.metrics import METRICS, PRIMARY
from strata.ab.results import ArmInfo, Comparison, Run
from strata.api import demo_path
from strata.config import find_knob
from strata.errors import InputError, StrataError
from strata.tokenizer import Tokenizer

CHILD = Path(__file__).with_name("child.py")
BY_PATH = "import runpy, sys; del sys.path[0]; runpy.run_path(sys.argv[1], run_name='__main__')"
"""Runs a file without putting its folder on the path, where its neighbours would hide other modules."""
PROMPT = Path(__file__).with_name("prompt.txt")

PAIRS = 50
RERUNS = 3  # for each pair of the plan; contaminated rounds after that count, and the report says so
TOKENS = 2048
DEMO_MINUTES = 4.0  # at most, with the demo model
TOLERANCE = 0.03  # an interval within this of equality needs no more pairs
DEMO_SLOTS = 96  # of the 384 experts of the demo model: an arena small enough that experts are streamed

Say = Callable[[str, int, int], object]
"""Told what is going on: a line, pairs done, pairs at most."""


@dataclasses.dataclass
class Options:
    """How to run. wait: seconds to wait for a gate, at a time. force: measure even where a gate refuses."""

    model: Path
    prompt: str | list[int] | None = None
    tokens: int = TOKENS
    decode: int = 0
    pairs: int = PAIRS
    knobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of all arms
    metric: str = PRIMARY
    tolerance: float = TOLERANCE
    max_minutes: float = math.inf
    cache: coldcache.Choice = "auto"
    cooldown: float = 0.1
    priority: int = -20  # nice value of the runs, where the system allows it; 0 leaves it as it is
    wait: float = 20.0
    max_wait: float = 60.0  # for all gates together, then measuring goes on and says so
    strict: bool = False  # refuse instead of going on
    force: bool = False
    dump: bool = False
    system: gates.System = dataclasses.field(default_factory=gates.System)
    seed: int | None = None  # of the coin that says which arm begins a block A B B A; None: another each time
    lock: Path | None = None
    build_cache: Path | None = None
    timeout: float = 3600.0


def run_comparison(arms: Sequence[Arm], options: Options, say: Say = lambda text, done, total: None) -> Comparison:
    """See `strata.ab.compare`."""
    if len(arms) < 2:
        raise InputError(f"a comparison needs at least 2 arms, not {len(arms)}.")
    if len({a.name for a in arms}) != len(arms):
        raise InputError("the arms need names of their own.")
    if options.metric not in METRICS:
        raise InputError(f"there is no metric {options.metric!r}; the metrics are: {', '.join(METRICS)}.")
    if options.decode < 0 or options.tokens < 1 or options.pairs < 1:
        raise InputError("tokens and pairs are at least 1, decode at least 0.")
    with gates.lock(options.lock, options.wait, lambda text: say(text, 0, options.pairs)):
        return _Comparer(list(arms), options, say).run()


class _Comparer:
    def __init__(self, arms: list[Arm], options: Options, say: Say) -> None:
        self.arms = [_with_common(a, options.knobs) for a in arms]
        self.options = options
        self.say = say
        self.start = time.monotonic()
        self.notes: list[str] = []
        self.runs: list[Run] = []
        self.info: dict[str, dict[str, Any]] = {}
        self.interpreters: dict[str, Interpreter] = {}
        self.waited = 0.0
        self.need = 0
        self.good_rounds = 0
        self.looked = 0  # pairs when the data were last looked at
        self.coin = random.Random(options.seed)
        self.forward: list[bool] = []  # for each block of two rounds: arms in their order first, then backwards
        self.kept_dirty = 0
        self.last_readings: list[gates.Reading] = []
        self.files = [Path(os.fsdecode(p)) for p, _ in _core.GgufFile(options.model).files]
        self.way = coldcache.method(options.cache)
        self.job, self.prompt = _job(options)
        # Several candidates share the error rate of the comparison.
        self.alpha = stats.ALPHA / (len(arms) - 1)
        self.plan = stats.plan(options.pairs, alpha=self.alpha)

    def run(self) -> Comparison:
        for arm in self.arms:
            self.say(f"preparing {arm.name}", 0, self.plan.pairs)
            self.interpreters[arm.name] = prepare(arm, self.options.build_cache)
            self._probe(arm)
        self._note_same_arms()
        stopped, level = "", self.alpha
        try:
            round_number = 0
            while not stopped:
                self._round(round_number)
                round_number += 1
                stopped = self._stop()
                if not stopped and (time.monotonic() - self.start) / 60 >= self.options.max_minutes:
                    stopped = f"the time of {self.options.max_minutes:g} minutes is up after {self.good_rounds} pairs"
        except KeyboardInterrupt:
            if self.good_rounds == 0:
                raise
            stopped = f"interrupted after {self.good_rounds} pairs"
        if self.good_rounds < self.plan.looks[0] and not stopped.startswith("all"):
            self._count_contaminated()
        level = self._final_level(stopped)
        dumped = self._dumps() if self.options.dump else {}
        if self.kept_dirty:
            self.notes.append(
                f"{self.kept_dirty} of {self.good_rounds} pairs count although a run of them was contaminated: there "
                "was no time or rerun left. The machine was not quiet."
            )
        return self._result(stopped, level, dumped)

    def _final_level(self, stopped: str) -> float:
        """Level of the last test.

        A stop that the data had no part in (time, Ctrl-C) may spend there what the looks before it have not.
        """
        n = self.good_rounds
        if n in self.plan.looks and not stopped.startswith(("the time", "interrupted")):
            return self.plan.level_at(n)
        made = [m for m in self.plan.looks if m <= self.looked]
        return self.alpha - (stats.spending(made[-1] / self.plan.pairs, self.alpha) if made else 0.0)

    def _count_contaminated(self) -> None:
        """Takes all whole rounds: the time was up before the first look, as nearly every round was contaminated.

        What others do has nothing to do with the arms, so this costs no error rate, only a wide interval.
        """
        arms = len(self.arms)
        whole = {n for n in {r.round for r in self.runs} if sum(r.round == n for r in self.runs) == arms}
        self.runs = [dataclasses.replace(r, counted=r.round in whole) for r in self.runs]
        self.kept_dirty = len({r.round for r in self.runs if r.counted and r.contaminated})
        self.good_rounds = len(whole)

    def _stop(self) -> str:
        """Why to stop now: every candidate's interval is decided, or all pairs were run."""
        self.looked = self.good_rounds
        reasons = []
        for arm in self.arms[1:]:
            ratios = self._log_ratios(arm.name)
            reason = stats.stop_reason(ratios, self.plan, self.options.tolerance)
            if not reason:
                return f"all {self.good_rounds} pairs were run" if self.good_rounds >= self.plan.pairs else ""
            reasons.append(reason)
        return "; ".join(dict.fromkeys(reasons))

    def _log_ratios(self, arm: str) -> list[float]:
        metric = self.options.metric
        values: dict[str, dict[int, float]] = {arm: {}, self.arms[0].name: {}}
        for r in self.runs:
            if r.counted and r.arm in values and r.metrics.get(metric, 0) > 0:
                values[r.arm][r.round] = r.metrics[metric]
        base = values[self.arms[0].name]
        return [math.log(v / base[n]) for n, v in sorted(values[arm].items()) if n in base]

    def _round(self, number: int) -> None:
        """One run of each arm; a round with a contaminated run is made again while there are reruns left."""
        self._pass_gates()
        block, second = divmod(self.good_rounds, 2)
        while len(self.forward) <= block:
            self.forward.append(bool(self.coin.getrandbits(1)))
        order = self.arms if self.forward[block] != bool(second) else self.arms[::-1]
        runs = []
        for arm in order:
            self.say(f"pair {self.good_rounds + 1}: {arm.name}", self.good_rounds, self.plan.pairs)
            self._cool()
            runs.append(self._measure(arm, number))
        dirty = any(r.contaminated for r in runs)
        reruns = number - self.good_rounds
        counted = not dirty or reruns >= RERUNS * self.plan.pairs
        if counted:
            self.good_rounds += 1
            self.kept_dirty += dirty
        else:
            self.say("contaminated, to be run again", self.good_rounds, self.plan.pairs)
        self.runs += [dataclasses.replace(r, counted=counted) for r in runs]

    def _pass_gates(self) -> None:
        """Waits until the gates let through, or goes on when the waiting is used up; refuses where that is no help."""
        start = time.monotonic()
        while True:
            readings = gates.check(self.options.system, self.need, seconds=0.2)
            self.last_readings = readings
            refused = [r for r in readings if r.state == "refuse"]
            if refused and not self.options.force:
                text = "; ".join(f"{r.gate}: {r.text}" for r in refused)
                raise StrataError(f"the machine is not fit to measure on: {text} (--force measures all the same).")
            shut = [r for r in readings if r.state == "wait"]
            if not shut:
                break
            text = "; ".join(f"{r.gate}: {r.text}" for r in shut)
            passed = time.monotonic() - start
            if passed >= self.options.wait or self.waited + passed >= self.options.max_wait:
                if any(r.gate == "memory" for r in shut) and not self.options.force:
                    raise StrataError(f"not enough memory to measure: {text} (--force measures all the same).")
                if self.options.strict:
                    raise StrataError(f"waited {passed:.0f} s, and still {text}.")
                note = "went on although a gate was shut after the time for waiting was used up"
                if not any(n.startswith(note) for n in self.notes):
                    self.notes.append(f"{note}: {text}")
                break
            self.say(f"waiting: {text}", self.good_rounds, self.plan.pairs)
            time.sleep(0.3)
        self.waited += time.monotonic() - start

    def _cool(self) -> None:
        """The pause between two runs, longer while a thermal zone is near its limit."""
        time.sleep(self.options.cooldown)
        start = time.monotonic()
        while time.monotonic() - start < self.options.wait:
            reading = gates.thermal(self.options.system)
            if reading.state != "wait":
                break
            self.say(f"cooling down: {reading.text}", self.good_rounds, self.plan.pairs)
            time.sleep(0.5)

    def _probe(self, arm: Arm) -> None:
        """A first run that does not count: does the arm work, what is in force, how much memory does it need?"""
        self.say(f"trying {arm.name}", 0, self.plan.pairs)
        result = self._child(arm, {**self.job, "decode": self.job["decode"][:1]})
        if result["unknown"]:
            raise InputError(f"arm {arm.name}: {'; '.join(result['unknown'])}.")
        self.info[arm.name] = result
        peak = int(result["metrics"].get("peak_rss", 0))
        self.need = max(self.need, int(result["plan_bytes"]), peak)

    def _measure(self, arm: Arm, number: int) -> Run:
        system = self.options.system
        coldcache.make_cold(self.way, self.files)
        before = gates.Snapshot.take(system)
        started = time.monotonic()
        result = self._child(arm, self.job)
        seconds = time.monotonic() - started
        others = gates.contention(result["window"])
        return Run(
            arm=arm.name,
            round=number,
            order=0,  # set when all runs are known
            started=started - self.start,
            seconds=seconds,
            metrics=result["metrics"],
            logits=result["logits"],
            foreign_share=others.foreign,
            waited_share=others.waited,
            contaminated=gates.contamination(system, before, gates.Snapshot.take(system), others),
        )

    def _child(self, arm: Arm, job: dict[str, Any], extra: Mapping[str, str] | None = None) -> dict[str, Any]:
        where = self.interpreters[arm.name]
        env = clean_env() | arm.environment() | dict(extra or {})
        if where.own:
            env["PYTHONPATH"] = os.pathsep.join(p for p in (str(CHILD.parents[2]), os.environ.get("PYTHONPATH")) if p)
        process = subprocess.Popen(
            [where.python, "-c", BY_PATH, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        try:
            out, err = process.communicate(json.dumps(job).encode(), timeout=self.options.timeout)
        except BaseException as e:
            process.kill()
            process.wait()
            if isinstance(e, subprocess.TimeoutExpired):
                raise StrataError(f"arm {arm.name}: a run took more than {self.options.timeout:g} s.") from None
            raise
        try:
            result: dict[str, Any] = json.loads(out.decode().strip().splitlines()[-1])
        except (ValueError, IndexError):
            tail = err.decode(errors="replace").strip()[-2000:]
            raise StrataError(
                f"arm {arm.name}: the run ended with status {process.returncode} and no result.\n{tail}"
            ) from None
        if "error" in result:
            raise StrataError(f"arm {arm.name}: {result['error']}")
        return result

    def _dumps(self) -> dict[str, Any]:
        """One more run of each arm, dumping, and the comparison of its files with the base's."""
        found: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="strata-ab-") as folder:
            for arm in self.arms:
                self.say(f"dumping {arm.name}", self.good_rounds, self.plan.pairs)
                self._child(arm, {**self.job, "decode": []}, {"STRATA_DUMP_MOE": str(Path(folder) / arm.name)})
            for arm in self.arms[1:]:
                result = dumps.compare(Path(folder) / self.arms[0].name, Path(folder) / arm.name)
                found[arm.name] = dataclasses.replace(
                    result,
                    a=self.arms[0].name,
                    b=arm.name,
                    errors=tuple(e.replace(folder + os.sep, "") for e in result.errors),
                ).to_json()
        return found

    def _note_same_arms(self) -> None:
        """Two arms that came out the same are easily taken for a comparison."""
        base = self.arms[0]
        for arm in self.arms[1:]:
            a, b = self.info[base.name], self.info[arm.name]
            values = [{k: v[0] for k, v in i["config"].items()} for i in (a, b)]
            if values[0] == values[1] and (base.build, a["version"]) == (arm.build, b["version"]):
                self.notes.append(
                    f"{base.name} and {arm.name} have the same settings: this compares an arm with itself."
                )

    def _result(self, stopped: str, level: float, dumped: dict[str, Any]) -> Comparison:
        infos = []
        for arm in self.arms:
            found = self.info[arm.name]
            infos.append(
                ArmInfo(
                    **{**arm.to_json(), "version": found["version"]},
                    effective=found["effective"],
                    config=found["config"],
                )
            )
        if self.options.priority and not all(i["priority"] for i in self.info.values()):
            self.notes.append("the runs had no higher priority than other programs: the system does not allow it")
        for reading in self.last_readings:
            if reading.state == "unknown":
                self.notes.append(f"not checked: {reading.gate} ({reading.text})")
        runs = sorted(self.runs, key=lambda r: r.started)
        runs = [dataclasses.replace(r, order=i) for i, r in enumerate(runs)]
        return Comparison(
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            machine=machine(),
            model={
                "name": self.options.model.name,
                "bytes": sum(p.stat().st_size for p in self.files),
                "files": len(self.files),
            },
            prompt=self.prompt,
            cache=coldcache.describe(self.way),
            metric=self.options.metric,
            tolerance=self.options.tolerance,
            alpha=self.alpha,
            looks=list(self.plan.looks),
            levels=list(self.plan.levels),
            final_level=level,
            stopped=stopped,
            seconds=time.monotonic() - self.start,
            gates=[r.to_json() for r in self.last_readings],
            arms=infos,
            runs=runs,
            dumps=dumped,
            notes=self.notes,
        )


def _with_common(arm: Arm, knobs: Mapping[str, str]) -> Arm:
    """The arm with the settings of all arms; one that it sets otherwise itself is an error."""
    for name, value in knobs.items():
        if arm.knobs.get(name, value) != value:
            raise InputError(f"arm {arm.name} has {name} = {arm.knobs[name]}, and all arms are to have {value}.")
        if not arm.build:
            find_knob(name).parse(value)
    return dataclasses.replace(arm, knobs={**knobs, **arm.knobs})


def _job(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a child is told, and what the report says of the prompt."""
    given = options.prompt
    if given is None or isinstance(given, str):
        text = PROMPT.read_text("utf-8") if given is None else given
        tokenizer = Tokenizer.from_gguf(_core.GgufFile(options.model))
        ids = tokenizer.encode(text)
        source = "the built-in text" if given is None else "a text"
    else:
        ids, source = [int(i) for i in given], "token ids"
    ids = [int(i) for i in ids]
    if not ids:
        raise InputError("the prompt is empty.")
    whole = ids
    wanted = options.tokens + options.decode
    while len(whole) < wanted:
        whole = whole + ids
    if len(ids) < options.tokens:
        source += ", repeated"
    tokens, decode = whole[: options.tokens], whole[options.tokens : wanted]
    digest = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16]
    job = {
        "model": str(options.model.absolute()),
        "tokens": tokens,
        "decode": decode,
        "priority": options.priority,
    }
    return job, {"tokens": len(tokens), "decode": len(decode), "source": source, "sha256": digest}


def machine() -> dict[str, Any]:
    """What a report says of the machine; no names of hosts or people."""
    import psutil

    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        cpu = found[1] if found else cpu
    elif sys.platform == "darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        cpu = done.stdout.strip() or cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": cpu or platform.machine(),
        "cores": cores,
        "memory_bytes": int(psutil.virtual_memory().total),
        "python": platform.python_version(),
    }


def compare(
    *arms: str | Arm,
    model: str | os.PathLike[str] | None = None,
    knobs: Mapping[str, Any] | None = None,
    progress: Say | None = None,
    **options: Any,
) -> Comparison:
    """Compares arms; the first is the base.

    arms: as `parse_arm` takes them ("base", "fast.toml", "IO_THREADS=8", "git=v0.1"), or Arm objects. model: a GGUF
    file, None = the demo model with an arena of a quarter of its experts and at most 4 minutes. knobs: settings of all
    arms. The other arguments are fields of `Options`: prompt, tokens, decode, pairs, metric, tolerance, max_minutes,
    cache, cooldown, priority, wait, max_wait, strict, force, dump, system, seed, timeout.

    Raises InputError, ConfigError, StrataError.
    """
    known = {f.name for f in dataclasses.fields(Options)} - {"model", "knobs"}
    for name in options:
        if name not in known:
            raise InputError(f"{name} is no argument of compare; there are: {', '.join(sorted(known))}.")
    texts = [a for a in arms if isinstance(a, str)]
    parsed = iter(parse_arms(texts))
    made = [a if isinstance(a, Arm) else next(parsed) for a in arms]
    common = {str(k).lower().removeprefix("strata_"): str(v) for k, v in (knobs or {}).items()}
    if model is None and not any({"arena_slots", "arena_gb"} & set(k) for k in (common, *(a.knobs for a in made))):
        common["arena_slots"] = str(DEMO_SLOTS)
    if model is None:
        options.setdefault("max_minutes", DEMO_MINUTES)
    path = Path(demo_path() if model is None else model)
    if not path.is_file():
        raise InputError(f"there is no model {path}.")
    return run_comparison(
        made, Options(model=path, knobs=common, **options), progress or (lambda text, done, total: None)
    )
