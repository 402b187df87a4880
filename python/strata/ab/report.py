"""Reports of comparisons: a table for the terminal, Markdown, HTML. All figures come from the raw runs."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from strata.ab import stats
from strata.ab.metrics import METRICS
from strata.ab.results import Comparison

WARM_BELOW = 0.9  # share of the expert bytes that must have come from the device for "cold"


def figure(value: float | None, unit: str) -> str:
    """A number with its unit, as short as it can be told."""
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "bytes":
        return f"{value / 1e9:.2f} GB" if abs(value) >= 1e9 else f"{value / 1e6:.2f} MB"
    text = f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def change(value: float | None) -> str:
    """A ratio as a change in per cent."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{100 * (value - 1):+.1f} %"


def interval(v: stats.Verdict) -> str:
    """The repeated confidence interval of a verdict."""
    return f"{change(v.low)} ... {change(v.high)}" if math.isfinite(v.high) else "-"


def facts(c: Comparison) -> list[str]:
    """What was compared, where and how: a line each."""
    m = c.machine
    counted = sum(r.counted for r in c.runs)
    lines = [
        f"model {c.model['name']} ({figure(c.model['bytes'], 'bytes')}), prompt of {c.prompt['tokens']} tokens "
        f"({c.prompt['source']}), {c.prompt['decode']} decode steps",
        f"{m['processor']}, {m['cores']} cores, {figure(m['memory_bytes'], 'bytes')}, {m['system']}; {c.created}",
        f"{len(c.runs)} runs, {counted} counted, in blocks A B B A or B A A B, {c.seconds:.0f} s in all; {c.cache}",
        f"stopped because {c.stopped}",
    ]
    for arm in c.arms:
        knobs = ", ".join(f"{k} = {v}" for k, v in arm.knobs.items()) or "defaults"
        lines.append(f"arm {arm.name}: {knobs}; strata {arm.version}{f', {arm.build}' if arm.build else ''}")
    drift = c.drift()
    if drift is not None:
        lines.append(drift.text())
    share = c.device_share()
    if share is not None and c.cache.startswith("cold") and share < WARM_BELOW:
        lines.append(f"NOT COLD: only {share:.0%} of the expert bytes came from the device")
    elif share is None and c.cache.startswith("cold"):
        lines.append("whether the reads came from the device could not be checked")
    dirty = sum(bool(r.contaminated) for r in c.runs)
    if dirty:
        lines.append(f"{dirty} of {len(c.runs)} runs were contaminated")
    return lines + c.notes


def bit_lines(c: Comparison) -> list[str]:
    """Whether results are the same bits: logits of every run, and dumps where they were made."""
    lines = []
    for arm in c.arms[1:]:
        equal = c.logits_equal(arm.name)
        if equal is not None:
            lines.append(f"logits of {c.base} and {arm.name}: {'the same bits in all runs' if equal else 'DIFFER'}")
        dump = c.dumps.get(arm.name)
        if dump is None:
            continue
        if dump["equal"]:
            lines.append(f"dumps of {c.base} and {arm.name}: {dump['files']} files, {dump['values']} values, equal")
        elif dump["errors"]:
            lines.append(f"dumps of {c.base} and {arm.name}: {'; '.join(dump['errors'])}")
        else:
            f = dump["first"]
            lines.append(
                f"dumps of {c.base} and {arm.name} DIFFER in {dump['different']} values, first in {f['file']}: layer "
                f"{f['layer']}, row {f['row']}, column {', '.join(map(str, f['column']))}: {f['a']} and {f['b']}"
            )
    return lines


def _rows(c: Comparison) -> list[list[str]]:
    """Table of all metrics: name, then per arm median and spread, then per candidate change and interval."""
    rows = []
    for name in c.shown_metrics():
        unit = METRICS[name].unit
        row = [name + (" *" if name == c.metric else "")]
        for arm in c.arms:
            s = stats.sample(c.values(arm.name, name))
            spread = "" if not s.n or s.mad == 0 else f" ±{figure(s.mad, unit)}"
            row.append(f"{figure(s.median, unit)}{spread}")
        for arm in c.arms[1:]:
            v = c.verdict(arm.name, name)
            row += [change(v.ratio), interval(v)]
        rows.append(row)
    return rows


def _columns(c: Comparison) -> list[str]:
    names = ["metric", *(a.name for a in c.arms)]
    for arm in c.arms[1:]:
        names += [f"{arm.name} / {c.base}", "interval"]
    return names


def to_rich(c: Comparison) -> RenderableType:
    """For the terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(_columns(c)):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in _rows(c):
        table.add_row(*map(Text, row))
    sentences = [Text(c.sentence(arm.name), style="bold") for arm in c.arms[1:]]
    details = []
    for arm in c.arms[1:]:
        details.append(Text(_detail(c, arm.name)))
    lines = [Text(line, style="red" if "DIFFER" in line or "NOT COLD" in line else "") for line in bit_lines(c)]
    return Group(
        *(Text(line) for line in facts(c)),
        Text(),
        table,
        Text(),
        *lines,
        *details,
        *sentences,
        Text(),
        Text("definitions"),
        *(Text(f"  {name}: {METRICS[name].definition}") for name in c.shown_metrics()),
    )


def _detail(c: Comparison, arm: str) -> str:
    v = c.verdict(arm)
    return (
        f"{arm} / {c.base}, {c.metric}: signed rank p = {v.p_signed_rank:.2g} at level {v.level:.3g}; sign test "
        f"{v.sign_lower} lower, {v.sign_higher} higher, p = {v.p_sign:.2g}; bootstrap of the median "
        f"{change(v.boot_low)} ... {change(v.boot_high)}"
    )


def to_text(c: Comparison, width: int = 120) -> str:
    """The terminal form as plain text."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    console.print(to_rich(c))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def to_markdown(comparisons: Sequence[Comparison]) -> str:
    """For a pull request or a job summary; several comparisons one below the other, with a table of all verdicts."""
    parts = []
    if len(comparisons) > 1:
        parts += ["| machine | model | verdict |", "|---|---|---|"]
        for c in comparisons:
            for arm in c.arms[1:]:
                parts.append(
                    f"| {_cell(c.machine['processor'])} | {_cell(c.model['name'])} | {_cell(c.sentence(arm.name))} |"
                )
        parts.append("")
    for c in comparisons:
        parts.append(f"### {' against '.join([*(a.name for a in c.arms[1:]), c.base])}")
        parts += ["", *(f"**{c.sentence(arm.name)}**  " for arm in c.arms[1:]), ""]
        columns = _columns(c)
        parts.append("| " + " | ".join(map(_cell, columns)) + " |")
        parts.append("|---" + "|---:" * (len(columns) - 1) + "|")
        parts += ["| " + " | ".join(map(_cell, row)) + " |" for row in _rows(c)]
        parts += [
            "",
            *(f"- {line}" for line in bit_lines(c) + facts(c)),
            *(f"- {_detail(c, a.name)}" for a in c.arms[1:]),
        ]
        parts += ["", "<details><summary>definitions</summary>", ""]
        parts += [f"- `{name}`: {METRICS[name].definition}" for name in c.shown_metrics()]
        parts += ["", "</details>", ""]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .2rem .8rem; text-align: right }
th { border-bottom: 2px solid #999 } td { border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
.verdict { font-size: 1.15rem; font-weight: 600 } .bad { color: #b00020 } img, svg { max-width: 100%; height: auto }
li { margin: .15rem 0 } dt { font-family: monospace; margin-top: .4rem } dd { margin-left: 1.5rem }
"""


def to_html(comparisons: Sequence[Comparison]) -> str:
    """One page that needs nothing else: tables, and plots as inline images where matplotlib is installed."""
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'><title>strata-ab</title>",
        f"<style>{STYLE}</style></head><body>",
    ]
    for c in comparisons:
        title = f"{', '.join(a.name for a in c.arms[1:])} against {c.base}"
        parts.append(f"<h1>{html.escape(title)}</h1>")
        parts += [f"<p class='verdict'>{html.escape(c.sentence(arm.name))}</p>" for arm in c.arms[1:]]
        parts.append("<ul>")
        for line in bit_lines(c):
            parts.append(f"<li{' class=bad' if 'DIFFER' in line else ''}>{html.escape(line)}</li>")
        parts.append("</ul><table><tr>" + "".join(f"<th>{html.escape(n)}</th>" for n in _columns(c)) + "</tr>")
        for row in _rows(c):
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
        for caption, image in plots(c):
            parts.append(f"<figure><figcaption>{html.escape(caption)}</figcaption>{image}</figure>")
        parts.append("<h2>How it was run</h2><ul>")
        parts += [
            f"<li{' class=bad' if 'NOT COLD' in line else ''}>{html.escape(line)}</li>"
            for line in facts(c) + [_detail(c, a.name) for a in c.arms[1:]]
        ]
        parts.append("</ul><h2>Definitions</h2><dl>")
        parts += [f"<dt>{name}</dt><dd>{html.escape(METRICS[name].definition)}</dd>" for name in c.shown_metrics()]
        parts.append("</dl>")
    return "\n".join([*parts, "</body></html>\n"])


def plots(c: Comparison) -> list[tuple[str, str]]:
    """(caption, <img> or a sentence) of the plots: paired differences, runs over time, where the time went."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return [("Plots", "<p>not drawn: they need matplotlib (pip install 'strata-moe[ab]').</p>")]
    unit = METRICS[c.metric].unit
    found = []
    for arm in c.arms[1:]:
        ratios = [100 * math.expm1(x) for x in c.log_ratios(arm.name)]
        if not ratios:
            continue
        fig = Figure(figsize=(8, 2.6), layout="constrained")
        ax = fig.subplots()
        v = c.verdict(arm.name)
        ax.axhline(0, color="0.3", linewidth=1)
        if math.isfinite(v.high):
            ax.axhspan(100 * (v.low - 1), 100 * (v.high - 1), color="tab:orange", alpha=0.25, label="interval")
        ax.axhline(100 * (v.ratio - 1), color="tab:orange", label="estimate")
        ax.plot(range(1, len(ratios) + 1), ratios, "o", color="tab:blue", markersize=4, label="pair")
        ax.set_xlabel("pair")
        ax.set_ylabel(f"{c.metric}, %")
        ax.legend(loc="best", fontsize=8)
        found.append((f"Paired differences: {arm.name} against {c.base}, per cent of {c.metric}", _image(fig)))
    fig = Figure(figsize=(8, 2.8), layout="constrained")
    ax = fig.subplots()
    for i, arm in enumerate(c.arms):
        runs = [r for r in c.runs if r.arm == arm.name and c.metric in r.metrics]
        for counted, marker in ((True, "o"), (False, "x")):
            chosen = [r for r in runs if r.counted is counted]
            if chosen:
                label = arm.name if counted else f"{arm.name}, not counted"
                ax.plot(
                    [r.started for r in chosen],
                    [r.metrics[c.metric] for r in chosen],
                    marker,
                    color=f"C{i}",
                    markersize=4,
                    label=label,
                )
    ax.set_xlabel("seconds since the beginning")
    ax.set_ylabel(f"{c.metric}, {unit}")
    ax.legend(loc="best", fontsize=8)
    found.append(("All runs over time", _image(fig)))
    parts = _time_parts(c)
    if parts:
        fig = Figure(figsize=(8, 0.8 + 0.45 * len(c.arms)), layout="constrained")
        ax = fig.subplots()
        left = [0.0] * len(c.arms)
        names = [a.name for a in c.arms]
        for label, values in parts:
            ax.barh(names, values, left=left, label=label)
            left = [a + b for a, b in zip(left, values, strict=True)]
        ax.invert_yaxis()
        ax.set_xlabel("ms, medians")
        ax.legend(loc="best", fontsize=8)
        found.append(("Where the time went: medians; the last part is a remainder", _image(fig)))
    return found


def _time_parts(c: Comparison) -> list[tuple[str, list[float]]]:
    """Medians per arm of loading, exposed wait for the drive, and the rest of the prefill."""

    def medians(metric: str) -> list[float]:
        return [s.median if s.n else 0.0 for s in (stats.sample(c.values(a.name, metric)) for a in c.arms)]

    prefill, exposed, load = medians("prefill_ms"), medians("exposed_ms"), medians("load_ms")
    if not any(prefill):
        return []
    rest = [max(0.0, p - e) for p, e in zip(prefill, exposed, strict=True)]
    return [("load", load), ("prefill: waiting for reads", exposed), ("prefill: everything else", rest)]


def _image(fig: Any) -> str:
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=110)
    return f"<img alt='' src='data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}'>"
