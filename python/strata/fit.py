"""The memory plan of a model, and, when it does not fit, settings with which it would."""

from __future__ import annotations

import os
from itertools import combinations
from typing import Any, Union

from strata import _core, ssd
from strata.config import Config
from strata.errors import ConfigError, OutOfMemoryPlanError
from strata.inspect import size_text

MOST = 3  # proposals
LEAST_CONTEXT = 256  # that is proposed
LEAST_AUTO = {"context": 4096, "prompt_chunk": 256}  # to which the core itself goes down, when the knob is 0
WORTH = 1.05  # times the arena alone: what another knob beside it has to make room for

PathLike = Union[str, "os.PathLike[str]"]
Settings = dict[str, Any]


def memory_plan(path: PathLike, config: Config) -> dict[str, Any]:
    """lines (name, bytes), config (values in force), available (bytes), from the file's header alone.

    Raises OutOfMemoryPlanError with `settings` that would fit; each was tried.
    """
    try:
        return _core.memory_plan(os.fsencode(path), core_settings(path, config))
    except OutOfMemoryPlanError as e:
        raise _explained(e, path, config) from None


def core_settings(path: PathLike, config: Config) -> Settings:
    """What the core loads the file with: automatic io_threads are those that its drive was probed to want."""
    return config.to_core() | {"io_threads": config.io_threads or ssd.readers(path) or 0}


def _explained(error: OutOfMemoryPlanError, path: PathLike, config: Config) -> OutOfMemoryPlanError:
    settings = proposals(path, config)
    text = (
        f"the memory plan needs {size_text(error.needed)}, {size_text(error.available)} are available: short by "
        f"{size_text(error.needed - error.available)}."
    )
    if settings:
        ways = "; ".join(" and ".join(f"{name} = {value}" for name, value in way.items()) for way in settings)
        text += f" {'Each of these would fit' if len(settings) > 1 else 'This would fit'}: {ways}."
    else:
        text += f" No setting makes it fit: the least is {size_text(_least(path, config))}."
    found = OutOfMemoryPlanError(text)
    found.plan, found.needed, found.available = error.plan, error.needed, error.available
    found.settings = tuple(settings)
    return found


def proposals(path: PathLike, config: Config) -> list[Settings]:
    """At most three sets of settings, each tried with a plan: single knobs first, then several together."""
    arena = _arena(path, config)
    ladders = _ladders(path, config)
    found = [{"arena_gb": arena}] if arena and _fits(path, config, {"arena_gb": arena}) else []
    for number in range(1, len(ladders) + 1):
        for names in combinations(ladders, number):
            way = _first_that_fits(path, config, {name: ladders[name] for name in names})
            if way and not any(less.items() <= way.items() for less in found):
                found.append(way)
        if number == 1:  # between two that fit, and an arena with room made by another knob
            found += _halfway(found, path, config, ladders)
            for name, rungs in ladders.items() if arena else []:
                less = {name: rungs[len(rungs) > 1]}
                more = _arena(path, config.override(**less))
                if more > WORTH * arena and _fits(path, config, less | {"arena_gb": more}):
                    found.append(less | {"arena_gb": more})
        if len(found) >= MOST:
            break
    return found[:MOST]


def _halfway(found: list[Settings], path: PathLike, config: Config, ladders: dict[str, list[Any]]) -> list[Settings]:
    """Two knobs, each changed half as much as when it is changed alone."""
    alone = {name: value for way in found for name, value in way.items() if len(ladders.get(name, [])) > 1}
    ways = []
    for names in combinations(alone, 2):
        # The second rung of a ladder is half of where it starts.
        way = {name: (2 * ladders[name][1] + alone[name]) // 2 for name in names}
        if _fits(path, config, way):
            ways.append(way)
    return ways


def _first_that_fits(path: PathLike, config: Config, ladders: dict[str, list[Any]]) -> Settings | None:
    """Down all ladders at the same pace."""
    steps = max(map(len, ladders.values()))
    ways = [{name: rungs[min(i, len(rungs) - 1)] for name, rungs in ladders.items()} for i in range(steps)]
    if not _fits(path, config, ways[-1]):
        return None
    return next(way for way in ways if _fits(path, config, way))


def _fits(path: PathLike, config: Config, way: Settings) -> bool:
    changed = config.override(arena_slots=0, **way) if "arena_gb" in way else config.override(**way)
    try:
        _core.memory_plan(os.fsencode(path), changed.to_core())
    except (OutOfMemoryPlanError, ConfigError):  # too much still, or below what the model can do with
        return False
    return True


def _ladders(path: PathLike, config: Config) -> dict[str, list[Any]]:
    """Smaller and smaller values of each knob that could help. An automatic sweep is as small as can be already."""
    ladders: dict[str, list[Any]] = {}
    if config.to_core()["kv_type"] == "f32":
        ladders["kv_type"] = ["f16"]
    ladders["prompt_sweep"] = _lower(config.prompt_sweep, 1)
    trained = _core.model_info(path, config.qsa_ratio)["hparams"]["context_length"]
    ladders["context"] = _lower(config.context or min(LEAST_AUTO["context"], trained), LEAST_CONTEXT)
    ladders["prompt_chunk"] = _lower(config.prompt_chunk or LEAST_AUTO["prompt_chunk"], 1)
    if config.threads != 1:
        ladders["threads"] = [1]
    return {name: rungs for name, rungs in ladders.items() if rungs}


def _least(path: PathLike, config: Config) -> int:
    """Bytes of the smallest plan there is."""
    least = config.override(context=LEAST_CONTEXT, prompt_chunk=1, prompt_sweep=1, threads=1, arena_gb=0, arena_slots=0)
    try:  # for memory that nothing fits into, so that the arena is the smallest, too
        plan = _core.memory_plan(os.fsencode(path), least.override(ram_gb=1e-9).to_core())
    except OutOfMemoryPlanError as e:
        return e.needed
    return sum(count for _, count in plan["lines"])


def _arena(path: PathLike, config: Config) -> float:
    """What an automatic one would get; 0 when it is automatic already, or would get nothing."""
    if not config.arena_gb and not config.arena_slots:
        return 0
    try:
        plan = _core.memory_plan(os.fsencode(path), config.override(arena_gb=0, arena_slots=0).to_core())
    except OutOfMemoryPlanError:
        return 0
    return int(plan["config"]["arena_gb"] * 1000) / 1000


def _lower(value: int, least: int) -> list[int]:
    """3/4, 1/2, 3/8, 1/4, ... of a value, down to the least."""
    rungs = []
    while value > least:
        rungs += [max(least, value * 3 // 4), max(least, value // 2)]
        value //= 2
    return rungs
