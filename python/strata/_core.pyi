"""The extension module: the C++ core as Python sees it. Everything here may raise the errors of strata.errors."""

from collections.abc import Callable, Mapping, Set
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

StrOrBytesPath = str | bytes | PathLike[str] | PathLike[bytes]

__version__: str
compiler: str  # that built the extension

class Engine:
    """A loaded model: weights, arena, memory plan. One lock inside: calls from several threads take turns."""

    def __init__(self, path: str | bytes, config: Mapping[str, str | int | float | None]) -> None:
        """config: Config.to_core(). Raises ModelFormatError, ConfigError, OutOfMemoryPlanError, StreamIOError."""

    @property
    def info(self) -> dict[str, Any]:
        """n_layer, n_vocab, hidden, context_length, and the other hyper-parameters."""

    @property
    def warnings(self) -> list[str]: ...
    @property
    def effective(self) -> dict[str, Any]:
        """Values in force: threads, arena_slots, arena_gb, kv_type, activations, context, prompt_chunk, ..."""

    @property
    def plan(self) -> list[tuple[str, int]]:
        """Lines of the memory plan with their bytes."""

    def popularity(self) -> NDArray[np.float64]:
        """Share of rows that use each expert, [layers, experts]: learnt so far."""

    def set_popularity(self, shares: ArrayLike) -> None:
        """What an earlier run learnt. Raises InputError for another size or values outside 0 to 1."""

    def profile(self) -> list[tuple[str, str, int, float, float, float]]:
        """(op, kernel, count, seconds, multiply-adds, weight bytes) since the last call; needs config "profile"."""

    def peak(self) -> tuple[float, float, float]:
        """Measured: 1e9 integer and float multiply-adds a second, 1e9 bytes a second read; all threads."""

    def program(self) -> str:
        """The program of a chunk, an op a line."""

    def session(self) -> Session: ...
    def prefill(
        self,
        session: Session,
        tokens: NDArray[np.int32],
        logits: Literal["last", "all", "none"] | str = "last",
        progress: Callable[[dict[str, Any]], object] | None = None,
        taps: dict[str, Any] | None = None,
        tap_names: Set[str] = ...,
    ) -> tuple[NDArray[np.float32] | None, dict[str, Any]]:
        """Runs tokens [T] after those the session holds; logits float32 [vocab] ("last") or [T, vocab] ("all").

        progress gets layer (layers of this sweep that are done), n_layer, chunk and n_chunk (of the sweep),
        tokens_done (of finished sweeps), tokens, sweep_tokens, seconds and the counters. An exception raised in it, or
        KeyboardInterrupt, stops the call and leaves the session where the sweep began. The stats: tokens, chunks,
        sweeps, seconds, tokens_per_second, exposed_by_layer, stream_fake, not_finite_layer, table_rows, table_reads,
        table_bytes, table_wait_seconds and the counters. The counters: lookups, resident, ahead, missed, late, issued,
        used, wasted, cancelled, pending, reads, bytes_read, read_seconds, exposed_seconds. taps, a dict, takes
        intermediates by name, as tests/oracle/README.md names them, [T, columns] each; tap_names: only those, of
        every layer ("router_ids"; empty: all). "L3/next_ids" are guesses of layer 4's experts, with prompt_pred=1.
        """

    def close(self) -> None: ...

class Session:
    """State of one text. Made by Engine.session()."""

    @property
    def position(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def state(self, name: str) -> NDArray[np.float32]:
        """A recurrent state by its buffer name, such as L0.S or L0.conv. Raises InputError when there is none."""

    def close(self) -> None: ...

def memory_plan(
    path: str | bytes | PathLike[str] | PathLike[bytes], config: Mapping[str, str | int | float | None]
) -> dict[str, Any]:
    """lines (name, bytes), config (values in force), available (bytes): what a load would take, from the header alone.

    Raises ModelFormatError, ConfigError, OutOfMemoryPlanError.
    """

class Product:
    """A weight matrix of any type and the kernels of one instruction set: for tests and benches."""

    def __init__(
        self,
        type: int,
        weights: Buffer,
        offset: int,
        rows: int,
        cols: int,
        isa: str = "auto",
        threads: int = 1,
        pack: bool = False,
    ) -> None: ...
    def run(self, x: ArrayLike, activations: str = "auto") -> NDArray[np.float32]: ...
    def into(self, x: ArrayLike, y: NDArray[np.float32], activations: str = "auto") -> None: ...

def available_memory() -> int:
    """Bytes this process may still take, by the machine and its cgroups; 0 = unknown."""

def allowed_cpus() -> int:
    """Cores this process may use: its affinity mask, and the CPU quotas of its cgroups."""

def cpu_isas() -> list[str]:
    """Instruction sets that this machine can run, plainest first."""

def top_k(p: ArrayLike, k: int) -> NDArray[np.int32]:
    """The k largest in falling order, the lower index first among equals; NaN is below everything."""

def delta_step(
    isa: str,
    state: NDArray[np.float32],
    q: NDArray[np.float32],
    k: NDArray[np.float32],
    v: NDArray[np.float32],
    decay: NDArray[np.float32],
    beta: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The delta rule for one token: state [dim, dim]; q, k, v [dim]; decay, beta [1] -> outputs [1, dim], state."""

class GgufFile:
    """The header of a GGUF file, or of a split set opened through its first file. Raises ModelFormatError."""

    def __init__(self, path: StrOrBytesPath) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def alignment(self) -> int: ...
    @property
    def files(self) -> list[tuple[str, int]]:
        """(path, bytes)"""

    @property
    def kinds(self) -> dict[str, str]: ...
    @property
    def tensors(self) -> list[dict[str, Any]]: ...
    @property
    def overhead_bytes(self) -> int: ...
    def keys(self) -> list[str]: ...
    def value(self, key: str) -> Any:
        """int, float, bool, str, numpy array (numbers) or list of str. Raises KeyError."""

def model_info(path: StrOrBytesPath, ratio_override: int = 0) -> dict[str, Any]:
    """Everything about a model file but its weights. Raises ModelFormatError, ConfigError."""

def quant_types() -> list[tuple[str, int, int, int]]:
    """The readable tensor types: (name, number in the file, values per block, bytes per block)."""

def dequantize(type: str | int, data: Buffer) -> NDArray[np.float32]:
    """Whole blocks of a tensor type -> flat float32 array. Raises InputError."""

def quantize(type: str | int, array: ArrayLike) -> NDArray[np.uint8]:
    """float32 rows [..., n] -> uint8 [..., bytes of a row]. Raises InputError."""

def route(
    logits: NDArray[np.float32], k: int, isa: str = ..., resident: NDArray[np.bool_] | None = ..., bonus: float = ...
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The router of the cpu backend: logits [T, E] -> ids [T, k], weights [T, k]. `bonus` is added to the logits of
    `resident` experts for the choice only. Raises InputError, ConfigError."""

def vector_kernel(
    name: str, isa: str, a: NDArray[np.float32], b: NDArray[Any] | None = ..., s: float = ..., m: float = ...
) -> Any:
    """One kernel of the cpu backend on copies of its arrays (csrc/cpu/isa/kernels.h says what each computes).

    max(a); exp_sum(a, s) -> (array, sum); to_f16(a); scale(a, s); silu_scaled(a, s); sigmoid_scaled(a, s, m);
    rms_norm(a, b = gamma, s = eps); add(a, b); axpy(a, s, b); sigmoid_gate(a, b); swiglu(a, b); dot_f16(a, b uint16);
    axpy_f16(a, s, b uint16); mix_streams(a = weights [streams, n], b); conv(a = rows [taps, n], b = taps).
    """

def delta_scan(
    isa: str,
    state: NDArray[np.float32],
    q: NDArray[np.float32],
    k: NDArray[np.float32],
    v: NDArray[np.float32],
    decay: NDArray[np.float32],
    beta: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The delta rule on one strip: state [dim, columns <= 32], q and k [T, dim], v [T, columns] -> outputs, state."""
