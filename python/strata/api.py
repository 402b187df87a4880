"""The public calls: load a model, run a prompt through it, generate text."""

from __future__ import annotations

import dataclasses
import importlib.resources
import math
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Union

import numpy as np
from numpy.typing import NDArray

from strata import _core, popularity
from strata.config import Config
from strata.errors import InputError, ModelFormatError, OutOfMemoryPlanError
from strata.fit import core_settings, memory_plan
from strata.progress import ProgressCallback, Reporter, from_core
from strata.routing import TAPS, Routing, from_taps
from strata.sampling import Sampler
from strata.tokenizer import StreamDecoder, Tokenizer

PathLike = Union[str, "os.PathLike[str]"]
Prompt = Union[str, "NDArray[np.integer[Any]]", Iterable[int]]
LogitsKind = Literal["last", "all", "none"]
ProgressArgument = bool | ProgressCallback | None


@dataclasses.dataclass(frozen=True, eq=False)
class PrefillResult:
    """What a prefill gave.

    tokens: int32 [T], the ids that were run. logits: float32 [vocab] after the last token, float32 [T, vocab] with
    logits="all", or None. stats: tokens, chunks, sweeps, seconds, tokens_per_second; of the experts lookups = resident
    (in memory) + ahead (read before they were asked for) + missed (waited for), issued = used + wasted + cancelled
    + pending (orders to read one), late (of ahead: still on the way), reads, bytes_read, read_seconds (readers at
    work), exposed_seconds (of waiting for experts), exposed_by_layer; of the n-gram table table_rows, table_reads,
    table_bytes, table_wait_seconds; not_finite_layer, the first whose output overflowed (n_layer: the logits), or None;
    stream_fake, True when the numbers mean nothing.
    session: stands after the last token; prefill(result.session, more) goes on from there. config: the settings and
    where each came from. effective: the values in force, automatic ones resolved. routing: with record=True, which
    experts each token chose.
    """

    tokens: NDArray[np.int32]
    logits: NDArray[np.float32] | None
    stats: dict[str, Any]
    session: Session
    config: Config
    effective: dict[str, Any]
    routing: Routing | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class GenerateResult:
    """What a generation gave.

    tokens: the new ids, an end token included. text: their text, without control tokens. finish_reason: "eos" (an end
    token), "length" (max_new_tokens), or "context" (the session is full). stats: prefill (the prompt's stats), tokens,
    seconds and tokens_per_second of the steps after it; bytes_read, lookups, resident, ahead, missed, wasted,
    cancelled and exposed_seconds of these steps.
    session: can go on; the last new token is run with whatever comes next. config, effective: as of PrefillResult.
    """

    tokens: list[int]
    text: str
    finish_reason: Literal["eos", "length", "context"]
    stats: dict[str, Any]
    session: Session
    config: Config
    effective: dict[str, Any]


class Model:
    """A loaded model. Made by `load`; a context manager that closes it.

    Several sessions of one model take turns. After close() every call raises InputError.
    """

    def __init__(self, path: PathLike, config: Config) -> None:
        if isinstance(path, bytes) or not isinstance(path, (str, os.PathLike)):
            raise InputError(f"a model is a path or a loaded Model, not {type(path).__name__}.")
        self.path = Path(path)
        self.config = config
        self._tokenizer: Tokenizer | None = None
        if config.popularity not in ("auto", "off"):
            popularity.check(Path(config.popularity))
        try:
            self._core: _core.Engine | None = _core.Engine(os.fsencode(path), core_settings(path, config))
        except OutOfMemoryPlanError:
            memory_plan(path, config)  # says what would fit, when it is the plan that does not
            raise
        self._info = dict(self._core.info)
        self._effective = dict(self._core.effective)
        self._popularity = self._load_popularity()

    @property
    def _engine(self) -> _core.Engine:
        if self._core is None:
            raise InputError(f"the model {self.path.name} is closed.")
        return self._core

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core is None

    @property
    def info(self) -> dict[str, Any]:
        """The model's sizes: n_layer, n_vocab, hidden, context_length (tokens, trained), and others."""
        return dict(self._info)

    @property
    def effective(self) -> dict[str, Any]:
        """The settings in force, automatic ones resolved: threads, arena_slots, arena_gb, context, and others."""
        return dict(self._effective)

    @property
    def plan(self) -> list[tuple[str, int]]:
        """The memory plan: (line, bytes)."""
        return list(self._engine.plan)

    def profile(self) -> list[tuple[str, str, int, float, float, float]]:
        """With pkprof: (op, kernel, count, seconds, multiply-adds, weight bytes) since the last call; else empty."""
        return list(self._engine.profile())

    @property
    def warnings(self) -> list[str]:
        """What the loader found odd but could work with, a sentence each."""
        return list(self._engine.warnings)

    @property
    def tokenizer(self) -> Tokenizer:
        """The file's own tokenizer, built when first asked for. Raises ModelFormatError for a kind strata lacks."""
        if self._tokenizer is None:
            _ = self._engine  # raises when closed
            try:
                self._tokenizer = Tokenizer.from_gguf(_core.GgufFile(os.fsencode(self.path)))
            except ModelFormatError as e:
                if e.file:
                    raise
                error = ModelFormatError(f"{self.path}: {e}")
                error.file = str(self.path)
                raise error from None
        return self._tokenizer

    def session(self) -> Session:
        """A new, empty session."""
        return Session(self, self._engine.session())

    def prefill(
        self,
        prompt: Prompt,
        *,
        logits: LogitsKind | None = "last",
        progress: ProgressArgument = None,
        parse_special: bool = True,
        record: bool = False,
    ) -> PrefillResult:
        """Runs a prompt in a new session; see `prefill`."""
        return prefill(self, prompt, logits=logits, progress=progress, parse_special=parse_special, record=record)

    def generate(self, prompt: Prompt, **arguments: Any) -> GenerateResult:
        """Generates in a new session; arguments as of `generate`."""
        return generate(self, prompt, **arguments)

    def _load_popularity(self) -> Path | None:
        """Gives the core what earlier runs learnt. The file that this run's experience goes to, None for none."""
        knob = self.config.popularity
        if knob == "off" or self.config.stream_fake:
            return None
        file = popularity.folder() / (popularity.fingerprint(self.path) + ".npz") if knob == "auto" else Path(knob)
        shares = popularity.read(file, (self._info["n_layer"], self._info["n_expert"]))
        if shares is not None:
            self._engine.set_popularity(shares)
        return file

    def _keep_popularity(self) -> None:
        """After a prompt: what was learnt is for the next run, and no reason to lose this one's result."""
        if self._core is None or self._popularity is None:
            return
        try:
            popularity.write(self._popularity, self._core.popularity())
        except OSError as e:
            self._popularity, name = None, self._popularity
            warnings.warn(f"what was learnt about the experts is not kept: {name}: {e.strerror}", stacklevel=3)

    def close(self) -> None:
        """Frees the model. Its sessions can no longer be used. Closing again does nothing."""
        if self._core is not None:
            core, self._core = self._core, None
            core.close()

    def __enter__(self) -> Model:
        _ = self._engine  # raises when closed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<strata.Model {self.path.name}{' closed' if self.closed else ''}>"


class Session:
    """One text in progress: the model's state after the tokens run so far. Keeps its model loaded.

    A call that fails or is interrupted leaves the session where the sweep at hand began: `position` says where.
    """

    def __init__(self, model: Model, core: _core.Session, *, owns_model: bool = False) -> None:
        self.model = model
        self._core: _core.Session | None = core
        self._owns_model = owns_model  # prefill(path): nobody else can close it
        # The last generated token, not run yet: its state is needed only when something follows.
        self._pending: list[int] = []

    @property
    def _session(self) -> _core.Session:
        if self._core is None:
            raise InputError("the session is closed.")
        _ = self.model._engine  # raises when closed
        return self._core

    @property
    def position(self) -> int:
        """Tokens run so far."""
        return int(self._session.position)

    def prefill(
        self,
        prompt: Prompt,
        *,
        logits: LogitsKind | None = "last",
        progress: ProgressArgument = None,
        parse_special: bool = True,
        record: bool = False,
    ) -> PrefillResult:
        """Runs more tokens; see `prefill`. After a generation the last generated token is run first."""
        kind = "none" if logits is None else logits
        if not isinstance(kind, str) or kind not in ("last", "all", "none"):
            raise InputError(f'logits is "last", "all" or None, not {logits!r}.')
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise InputError(f"progress is True, None or a callable, not {type(progress).__name__}.")
        tokens = self._tokens(prompt, parse_special)
        taps: dict[str, Any] | None = {} if record else None
        if progress is True:
            with Reporter() as reporter:
                values, stats = self._run(tokens, kind, reporter, taps)
        else:
            values, stats = self._run(tokens, kind, progress or None, taps)
        model = self.model
        if len(tokens) > 1:  # not after every token of a text that is being forced
            model._keep_popularity()
        recorded = None
        if taps is not None:
            info = _core.model_info(os.fsencode(model.path), model.config.qsa_ratio)
            recorded = from_taps(taps, tokens, info["hparams"]["n_expert"], tuple(info["expert_bytes"]))
        return PrefillResult(tokens, values, stats, self, model.config, model.effective, recorded)

    def generate(
        self,
        prompt: Prompt = "",
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop_at_eos: bool = True,
        on_token: Callable[[int, str], object] | None = None,
        progress: ProgressArgument = None,
        parse_special: bool = True,
    ) -> GenerateResult:
        """Generates after the tokens so far and the prompt; see `generate`. "" goes on after a generation."""
        limit = _whole("max_new_tokens", max_new_tokens, 1)
        sampler = Sampler(
            _number("temperature", temperature, 0, math.inf),
            _whole("top_k", top_k, 0),
            _number("top_p", top_p, 0, 1, above=True),
            None if seed is None else _whole("seed", seed, 0),
        )
        if on_token is not None and not callable(on_token):
            raise InputError(f"on_token is a callable or None, not {type(on_token).__name__}.")
        tokenizer = self.model.tokenizer
        first = self.prefill(prompt, logits="last", progress=progress, parse_special=parse_special)
        assert first.logits is not None
        logits = first.logits
        decoder = StreamDecoder(tokenizer)
        tokens: list[int] = []
        pieces: list[str] = []
        names = ("bytes_read", "lookups", "resident", "ahead", "missed", "wasted", "cancelled", "exposed_seconds")
        totals: dict[str, Any] = dict.fromkeys(names, 0)
        start = time.perf_counter()
        reason: Literal["eos", "length", "context"]
        while True:
            token = sampler.choose(logits)
            self._pending = [token]
            tokens.append(token)
            # An id past the tokenizer's vocabulary (padding of the output matrix) has no text.
            pieces.append(decoder.push(token) if token < tokenizer.n_vocab else "")
            if on_token is not None:
                on_token(token, pieces[-1])
            if stop_at_eos and token in tokenizer.eos_ids:
                reason = "eos"
                break
            if len(tokens) >= limit:
                reason = "length"
                break
            if self.position >= self._context:
                reason = "context"
                break
            step, stats = self._run(np.array(self._pending, np.int32), "last", None)
            assert step is not None
            logits = step
            for name in totals:
                totals[name] += stats[name]
        pieces.append(decoder.finish())
        if on_token is not None and pieces[-1]:
            on_token(tokens[-1], pieces[-1])
        seconds = time.perf_counter() - start
        stats = {
            "prefill": first.stats,
            "tokens": len(tokens),
            "seconds": seconds,
            # The first token comes out of the prompt; each other one took a step.
            "tokens_per_second": (len(tokens) - 1) / seconds if seconds > 0 else 0.0,
            **totals,
        }
        return GenerateResult(tokens, "".join(pieces), reason, stats, self, first.config, first.effective)

    def close(self) -> None:
        """Frees the session's state. Closing again does nothing."""
        if self._core is not None:
            core, self._core = self._core, None
            if not self.model.closed:
                core.close()
            if self._owns_model:
                self.model.close()

    def __enter__(self) -> Session:
        _ = self._session  # raises when closed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _context(self) -> int:
        return int(self.model.effective["context"])

    def _tokens(self, prompt: Prompt, parse_special: bool) -> NDArray[np.int32]:
        """The ids to run: pending ones, then the prompt's. Every check that needs no model work is made here."""
        position = self.position
        n_vocab = int(self.model.info["n_vocab"])
        if isinstance(prompt, str):
            prompt = self.model.tokenizer.encode(prompt, parse_special=parse_special)
        tokens = np.concatenate([np.array(self._pending, np.int32), token_ids(prompt, n_vocab)])
        if len(tokens) == 0:
            raise InputError("the prompt is empty: 0 tokens, and at least 1 is needed.")
        if position + len(tokens) > self._context:
            held = f" after the {position} that the session holds" if position else ""
            raise InputError(f"the prompt has {len(tokens)} tokens{held}, the context has room for {self._context}.")
        return tokens

    def _run(
        self,
        tokens: NDArray[np.int32],
        kind: str,
        progress: ProgressCallback | None,
        taps: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32] | None, dict[str, Any]]:
        report = None if progress is None else from_core(progress)
        values, stats = self.model._engine.prefill(self._session, tokens, kind, report, taps, TAPS)
        self._pending = []
        return values, stats


def load(path: PathLike, config: Config | None = None, **overrides: Any) -> Model:
    """Loads a model file; the first file of a split set stands for the set.

    config: the settings, None = Config.from_env(). overrides: single settings above it, by knob name. Use it as a
    context manager, or close it: `with strata.load(path, arena_gb=8) as model: ...`

    Raises ModelFormatError, ConfigError, OutOfMemoryPlanError, StreamIOError.
    """
    if config is None:
        config = Config.from_env(**overrides)
    elif isinstance(config, Config):
        config = config.override(**overrides)
    else:
        raise InputError(f"config is a strata.Config or None, not {type(config).__name__}.")
    return Model(path, config)


def prefill(
    model: PathLike | Model | Session,
    prompt: Prompt,
    *,
    config: Config | None = None,
    logits: LogitsKind | None = "last",
    progress: ProgressArgument = None,
    parse_special: bool = True,
    record: bool = False,
    **overrides: Any,
) -> PrefillResult:
    """Runs a prompt through a model.

    model: a path (the model stays loaded as long as the result's session), a loaded Model, or a Session to go on from.
    prompt: text, or token ids as a list or 1-D integer array. config, overrides: settings, for a path only: those of a
    loaded model are fixed. logits: "last", "all" (T x vocab x 4 bytes) or None. progress: a callable that takes a
    strata.Progress, or True for a bar on stderr; an exception raised in it stops the prefill. parse_special: False
    takes the text of control tokens in a prompt as plain text. record: the result gets the routing.

    Raises InputError before any work when the prompt cannot be run (empty, an id outside the vocabulary, longer than
    the context), and what `load` raises. KeyboardInterrupt leaves the session where the sweep at hand began.
    """
    session = _session_of(model, config, overrides)
    try:
        return session.prefill(prompt, logits=logits, progress=progress, parse_special=parse_special, record=record)
    except BaseException:
        if session is not model:
            session.close()
        raise


def generate(
    model: PathLike | Model | Session,
    prompt: Prompt = "",
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    stop_at_eos: bool = True,
    on_token: Callable[[int, str], object] | None = None,
    config: Config | None = None,
    progress: ProgressArgument = None,
    parse_special: bool = True,
    **overrides: Any,
) -> GenerateResult:
    """Generates text after a prompt.

    temperature 0 takes the most likely token, of equal ones the lower id. Otherwise a token is drawn from the top_k
    most likely (0 = all) that make up top_p of the probability; the same seed gives the same text. stop_at_eos: an end
    token ends the text. on_token(id, text) is called for each new token with the text that became complete, which may
    be empty; an exception raised in it stops the generation. The other arguments are those of `prefill`.

    Raises InputError for arguments that cannot be served, and what `prefill` raises.
    """
    session = _session_of(model, config, overrides)
    try:
        return session.generate(
            prompt,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_at_eos=stop_at_eos,
            on_token=on_token,
            progress=progress,
            parse_special=parse_special,
        )
    except BaseException:
        if session is not model:
            session.close()
        raise


def demo_path() -> Path:
    """The small model that comes with the package (16 MB): children's stories and simple questions."""
    return Path(str(importlib.resources.files("strata") / "data" / "demo.gguf"))


def token_ids(ids: Any, n_vocab: int) -> NDArray[np.int32]:
    """ids as int32 [T], each checked to lie in the vocabulary. Raises InputError."""
    if ids is None or isinstance(ids, (bytes, bytearray, bool, dict, set)):
        raise InputError(f"a prompt is a text or a sequence of token ids, not {type(ids).__name__}.")
    try:
        array = np.asarray(ids if isinstance(ids, np.ndarray) or hasattr(ids, "__array__") else list(ids))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"a prompt is a text or a sequence of token ids, not {type(ids).__name__}.") from None
    if array.ndim != 1:
        raise InputError(f"token ids have one dimension, these have {array.ndim} (shape {array.shape}).")
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise InputError(f"token ids are integers that fit 64 bits, these are {array.dtype}.")
    outside = (array < 0) | (array >= n_vocab)
    if outside.any():
        i = int(np.argmax(outside))
        raise InputError(f"token id {array[i]} at position {i} is outside the vocabulary of {n_vocab} tokens.")
    return np.ascontiguousarray(array, np.int32)


def _session_of(model: Any, config: Config | None, overrides: dict[str, Any]) -> Session:
    if not isinstance(model, (Model, Session)):
        loaded = load(model, config, **overrides)
        try:
            return Session(loaded, loaded._engine.session(), owns_model=True)
        except BaseException:
            loaded.close()
            raise
    if config is not None or overrides:
        given = ", ".join(["config"] * (config is not None) + list(overrides))
        raise InputError(f"the settings of a loaded model are fixed; {given} can be given with a path or to load().")
    return model if isinstance(model, Session) else model.session()


def _whole(name: str, value: Any, low: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} is a whole number, not {type(value).__name__}.") from None
    if isinstance(value, bool) or number < low:
        raise InputError(f"{name} is a whole number from {low}, not {value!r}.")
    return number


def _number(name: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    """value as a finite float in [low, high], or in (low, high] with above."""
    try:
        number = float(operator.pos(value))
    except (TypeError, ValueError):
        raise InputError(f"{name} is a number, not {type(value).__name__}.") from None
    if isinstance(value, bool) or not math.isfinite(number) or not low <= number <= high or (above and number == low):
        bounds = f"{'above' if above else 'from'} {low:g}" + ("" if high == math.inf else f" to {high:g}")
        raise InputError(f"{name} is a number {bounds}, not {value!r}.")
    return number
