"""Replays a recorded routing: how many experts each eviction policy would have to read, for an arena of a given size.

Nothing is timed and nothing is guessed: every expert that is used and not in the arena is one read. A replay is a list
of steps: a step is one layer's pass over the rows of a sweep. In all policies but `engine` the experts that are there
are used first and each may give way after its use, so one slot is enough. `belady` knows the future and keeps after
each step, of what was there and what was read, the experts whose next uses are nearest; nothing reads less. (It may
keep none of what it read, which takes a slot in passing that it is not charged for.) `engine` is the arena of
csrc/stream, and the order in which the stream asks, holds and lets go.

The arena has a class of slots for each size of expert (as in csrc/stream/arena.cpp); classes are replayed one by one.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from strata.errors import InputError
from strata.routing import Routing

NEVER = 1 << 62
HALF_LIFE, PRIOR = 256.0, 256.0  # rows; csrc/stream/arena.cpp


@dataclasses.dataclass(frozen=True)
class Step:
    """A layer's pass in a sweep.

    chunks: the experts of each chunk's rows in the order of the router's output, as often as they were chosen. decode:
    the sweep was a token after the prompt.
    """

    layer: int
    rows: int
    chunks: tuple[NDArray[np.int32], ...]
    decode: bool

    @functools.cached_property
    def experts(self) -> list[int]:
        """The distinct ones, rising."""
        values: list[int] = np.unique(np.concatenate(self.chunks)).tolist()
        return values


@dataclasses.dataclass
class Tally:
    """lookups: distinct experts asked for, per step. reads: of them not in the arena."""

    lookups: int = 0
    reads: int = 0

    @property
    def hits(self) -> float:
        """Share of the lookups that needed no read."""
        return 1 - self.reads / self.lookups if self.lookups else 0.0


@dataclasses.dataclass(frozen=True)
class Result:
    """What a policy read for the prompt, and for the tokens after it."""

    policy: str
    slots: int
    prompt: Tally
    decode: Tally


def replay(
    routing: Routing, policy: str, slots: int, *, sweep: int, chunk: int | None = None, decode: int = 0, times: int = 1
) -> Result:
    """Replays a recording on an arena of `slots` that is empty at first.

    sweep, chunk: rows that share a reading of a layer, and rows that go through its router together (default: a sweep).
    decode: so many of the last tokens come one by one. times: the whole recording so many times over. policy: one of
    POLICIES. Raises InputError.
    """
    if policy not in POLICIES:
        raise InputError(f"there is no policy {policy!r}; the policies are {', '.join(POLICIES)}.")
    chunk = sweep if chunk is None else chunk
    if slots < 1 or sweep < 1 or chunk < 1 or times < 1 or not 0 <= decode <= routing.rows:
        raise InputError(f"slots, sweep, chunk and times are at least 1, and decode at most {routing.rows} tokens.")
    prompt, after = Tally(), Tally()
    steps = list(_steps(routing, sweep, chunk, decode)) * times
    for layers in _classes(routing.expert_bytes):
        share = max(1, min(slots * len(layers) // routing.layers, len(layers) * routing.experts))
        mine = [s for s in steps if s.layer in layers]
        for step, reads in zip(mine, POLICIES[policy](mine, share, layers, routing.experts), strict=True):
            tally = after if step.decode else prompt
            tally.lookups += len(step.experts)
            tally.reads += reads
    return Result(policy, slots, prompt, after)


def _classes(sizes: Sequence[int]) -> list[list[int]]:
    """The layers of each size of expert."""
    return [[i for i, size in enumerate(sizes) if size == wanted] for wanted in dict.fromkeys(sizes)]


def _steps(routing: Routing, sweep: int, chunk: int, decode: int) -> Iterator[Step]:
    prompt = routing.rows - decode
    starts = [(a, min(a + sweep, prompt)) for a in range(0, prompt, sweep)]
    starts += [(a, a + 1) for a in range(prompt, routing.rows)]
    for begin, end in starts:
        for layer in range(routing.layers):
            parts = (routing.ids[layer, a : min(a + chunk, end)].ravel() for a in range(begin, end, chunk))
            yield Step(layer, end - begin, tuple(parts), begin >= prompt)


# ------------------------------------------------------------------------------------------------- plain policies

Key = tuple[int, int]  # layer, expert


class _Lru:
    """Least recently used first. A policy holds the keys that are in the arena: `use` when one was used (or came in),
    `pop` for the one to give up. late: it gives up experts at the end of a step, not one before each read."""

    late = False

    def __init__(self) -> None:
        self.order: OrderedDict[Key, None] = OrderedDict()

    def use(self, key: Key, step: int) -> None:
        self.order[key] = None
        self.order.move_to_end(key)

    def pop(self) -> Key:
        return self.order.popitem(last=False)[0]


class _Clock(_Lru):
    """Second chance: a key that was used again since the hand passed it stays for one more round."""

    def __init__(self) -> None:
        self.ring: deque[Key] = deque()
        self.again: dict[Key, bool] = {}

    def use(self, key: Key, step: int) -> None:
        if key in self.again:
            self.again[key] = True
        else:
            self.again[key] = False
            self.ring.append(key)

    def pop(self) -> Key:
        while True:
            key = self.ring.popleft()
            if not self.again[key]:
                del self.again[key]
                return key
            self.again[key] = False
            self.ring.append(key)


class _Ranked(_Lru, abc.ABC):
    """The lowest rank goes first; of equal ones, the one used longest ago."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Key]] = []
        self.stamp: dict[Key, int] = {}
        self.n = 0

    @abc.abstractmethod
    def rank(self, key: Key, step: int) -> int:
        """What the key counts for after a use in this step."""

    def use(self, key: Key, step: int) -> None:
        self.n += 1
        self.stamp[key] = self.n
        heapq.heappush(self.heap, (self.rank(key, step), self.n, key))

    def pop(self) -> Key:
        while True:
            _, n, key = heapq.heappop(self.heap)
            if self.stamp.get(key) == n:
                del self.stamp[key]
                return key


class _Lfu(_Ranked):
    """Fewest uses first, those before it was last given up counted too."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: Counter[Key] = Counter()

    def rank(self, key: Key, step: int) -> int:
        self.uses[key] += 1
        return self.uses[key]


class _Belady(_Ranked):
    """The key whose next use is farthest goes first: knows the future."""

    late = True

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        # after[i]: the next use, after step i, of each key that step i uses.
        self.after: list[dict[Key, int]] = [{} for _ in steps]
        seen: dict[Key, int] = {}
        for i in range(len(steps) - 1, -1, -1):
            for expert in steps[i].experts:
                key = steps[i].layer, expert
                self.after[i][key] = seen.get(key, NEVER)
                seen[key] = i

    def rank(self, key: Key, step: int) -> int:
        return -self.after[step][key]


def _plain(make: Callable[[Sequence[Step]], _Lru]) -> Callable[[list[Step], int, list[int], int], Iterator[int]]:
    def run(steps: list[Step], slots: int, _layers: list[int], _experts: int) -> Iterator[int]:
        policy = make(steps)
        here: set[Key] = set()
        for i, step in enumerate(steps):
            keys = [(step.layer, e) for e in step.experts]
            missing = [k for k in keys if k not in here]
            for key in keys:
                if key in here:
                    policy.use(key, i)
            for key in missing:
                if len(here) >= slots and not policy.late:
                    here.remove(policy.pop())
                here.add(key)
                policy.use(key, i)
            while len(here) > slots:
                here.remove(policy.pop())
            yield len(missing)

    return run


# ------------------------------------------------------------------------------------------------- the engine's


class _Arena:
    """csrc/stream/arena.cpp for one class of slots, without guesses; names are those of the C++."""

    def __init__(self, slots: int, layers: list[int], experts: int) -> None:
        self.experts = experts
        self.free = list(range(slots))[::-1]
        self.cold: OrderedDict[int, None] = OrderedDict()  # slots; the first gives way first
        self.hot_list: OrderedDict[int, None] = OrderedDict()
        self.key: list[Key | None] = [None] * slots
        self.share = {layer: np.full(experts, 1 / experts) for layer in layers}  # any equal shares order alike
        self.seen = dict.fromkeys(layers, PRIOR)
        passing = min(slots, max(slots // 10, 2 * experts))
        self.quota = min((slots - passing) // len(layers), experts)
        self.want: dict[int, set[int]] = {layer: set() for layer in layers}
        self.hot: dict[int, set[int]] = {layer: set() for layer in layers}

    def claim(self) -> tuple[int, Key | None]:
        """A slot for an urgent read, and the key that gave way."""
        if self.free:
            return self.free.pop(), None
        slot, _ = (self.cold or self.hot_list).popitem(last=False)
        evicted = self.key[slot]
        assert evicted is not None
        self.hot[evicted[0]].discard(evicted[1])
        self.key[slot] = None
        return slot, evicted

    def make_idle(self, slot: int, key: Key) -> None:
        layer, expert = key
        self.key[slot] = key
        if expert in self.want[layer] and len(self.hot[layer]) < self.quota:
            self.hot[layer].add(expert)
        (self.hot_list if expert in self.hot[layer] else self.cold)[slot] = None

    def make_busy(self, slot: int) -> None:
        self.cold.pop(slot, None)
        self.hot_list.pop(slot, None)

    def observe(self, layer: int, rows: NDArray[np.int64], total: int) -> None:
        keep = self.seen[layer] * 2.0 ** (-total / HALF_LIFE)
        added = min(float(total), HALF_LIFE / np.log(2.0))
        share = self.share[layer] = (self.share[layer] * keep + rows * (added / total)) / (keep + added)
        self.seen[layer] = keep + added
        if self.quota == 0:
            return
        self.want[layer] = set(np.lexsort((np.arange(self.experts), -share))[: self.quota].tolist())
        for slot, key in enumerate(self.key):
            if key is None or key[0] != layer or key[1] not in self.hot[layer] or key[1] in self.want[layer]:
                continue
            self.hot[layer].remove(key[1])
            if slot in self.hot_list:
                del self.hot_list[slot]
                self.cold[slot] = None


def _engine(steps: list[Step], slots: int, layers: list[int], experts: int) -> Iterator[int]:
    """The stream without guesses, and with readers that are never behind: what is asked for in one go has its slot
    before anything else happens."""
    arena = _Arena(slots, layers, experts)
    where: dict[Key, int] = {}
    for step in steps:
        active: dict[int, None] = {}
        reads = 0

        def ask(wanted: Sequence[int], layer: int = step.layer, active: dict[int, None] = active) -> list[int]:
            """The experts are held from now on; those that must be read."""
            missing = []
            for expert in wanted:
                active[expert] = None
                if (layer, expert) in where:
                    arena.make_busy(where[layer, expert])
                else:
                    missing.append(expert)
            return missing

        def read(missing: list[int], layer: int = step.layer) -> int:
            for expert in missing:
                slot, evicted = arena.claim()
                if evicted is not None:
                    del where[evicted]
                arena.key[slot] = layer, expert
                where[layer, expert] = slot
            return len(missing)

        for ids in step.chunks:  # note()
            new = [e for e in dict.fromkeys(ids.tolist()) if e not in active]
            reads += read(ask(new[: max(0, slots // 2 - len(active))]))

        needed = step.experts  # at_layer()
        run, lead = len(needed), 0
        missing = []
        if len(needed) > slots:
            room = slots - len(active)
            run = max(1, room // 2)
            lead = min(run, room - run)
        else:
            missing = ask([e for e in needed if e not in active])
        arena.observe(step.layer, np.bincount(np.concatenate(step.chunks), minlength=experts), step.rows)
        reads += read(missing)

        for begin in range(0, len(needed), run):  # Groups
            reads += read(ask([e for e in needed[: begin + run + lead] if e not in active]))
            for expert in needed[begin : begin + run]:
                key = step.layer, expert
                arena.make_idle(where[key], key)
        yield reads


POLICIES: dict[str, Callable[[list[Step], int, list[int], int], Iterator[int]]] = {
    "engine": _engine,
    "lru": _plain(lambda steps: _Lru()),
    "clock": _plain(lambda steps: _Clock()),
    "lfu": _plain(lambda steps: _Lfu()),
    "belady": _plain(lambda steps: _Belady(steps)),
}
