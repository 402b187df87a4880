"""What is measured. Each metric is defined once, here; reports print the definitions of those they show."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Metric:
    """One measured quantity. better: -1 less is better, 1 more is better, 0 neither."""

    name: str
    unit: str
    better: int
    definition: str


_ALL = [
    Metric(
        "prefill_ms",
        "ms",
        -1,
        "Wall time of the prefill call in a freshly loaded model: from handing over the token ids to having the logits "
        "after the last one (CLOCK_MONOTONIC in the process that runs the model). Tokenising and loading are outside.",
    ),
    Metric(
        "chunk_ms", "ms", -1, "prefill_ms by the core's own clock (stats.seconds), divided by the number of chunks."
    ),
    Metric("prefill_tok_s", "tok/s", 1, "Tokens of the prompt divided by prefill_ms."),
    Metric(
        "decode_tok_s",
        "tok/s",
        1,
        "Steps of one forced token after the prefill, divided by their wall time. The forced tokens are the same for "
        "all arms. Absent without --decode.",
    ),
    Metric("load_ms", "ms", -1, "Wall time of strata.load: header, memory plan, resident weights read and laid out."),
    Metric("bytes_read", "bytes", -1, "Bytes of experts read from files during the prefill (the stream's counter)."),
    Metric("lookups", "", 0, "Distinct experts asked for, per layer and sweep: hits + ahead + missed."),
    Metric("hits", "", 0, "Lookups that found the expert resident in the arena."),
    Metric("ahead", "", 0, "Lookups whose expert was being read, or had been read, before its layer asked for it."),
    Metric("missed", "", -1, "Lookups whose read was queued only when the layer asked."),
    Metric("unused", "", -1, "Experts read ahead and not used (wasted + cancelled after they began)."),
    Metric("exposed_ms", "ms", -1, "Time the computation waited for reads during the prefill (the stream's counter)."),
    Metric("drive_gb_s", "GB/s", 1, "bytes_read divided by prefill_ms: what the drive gave over the whole prefill."),
    Metric(
        "device_bytes",
        "bytes",
        0,
        "Bytes that the process caused to be read from block devices during load, prefill and decode (read_bytes of "
        "/proc/PID/io). Far below the bytes asked for means that the page cache was warm. Linux only.",
    ),
    Metric("peak_rss", "bytes", -1, "Highest resident set of the process (getrusage ru_maxrss), loading included."),
    Metric(
        "phys_footprint",
        "bytes",
        -1,
        "Highest physical footprint of the process (ri_lifetime_max_phys_footprint of proc_pid_rusage). macOS only.",
    ),
    Metric("cpu_s", "s", -1, "User and system time of all threads of the process during prefill and decode."),
    Metric(
        "energy_j",
        "J",
        -1,
        "Energy of the whole package over the life of the process (Linux: RAPL energy_uj, where readable) or billed to "
        "the process (macOS: ri_billed_energy). Absent where the system gives none.",
    ),
]

METRICS: dict[str, Metric] = {m.name: m for m in _ALL}
"""Every metric by name, in the order in which reports show them."""

PRIMARY = "prefill_ms"
"""The metric that the verdict is about unless another is asked for."""
