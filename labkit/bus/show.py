"""A run in print: the table, and what it says in a sentence."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit.bus.points import Key, Series
from labkit.bus.reach import Reach
from labkit.stats import Summary

_ORDER = {"sweep": "", "contention": "", "knee": " half bytes", "ceiling": " from L2", "scaling": " from L1"}
_STORES = {"nontemporal": " n.t.", "regular": "", "": ""}


def print_reach(reach: Reach, console: Console) -> None:
    """The table of all series why any of them is in doubt, and the sentence. Fits 80 columns."""
    header = reach.run.header
    tiers = len({s.key.tier for s in reach.series if s.key.engine == "cpu"}) > 1
    console.print(Text(f"{header.chip}: memory bandwidth ({header.kind})", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold")
    for name in ("what", "thr", *(("tier",) if tiers else ()), "kernel"):
        table.add_column(name, no_wrap=True)
    for name in ("GB/s", "95 % interval", "spread", "n", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    ordered = sorted(reach.series, key=lambda s: (list(_ORDER).index(s.key.probe), s.key.op != "read"))
    for s in ordered:
        table.add_row(*(Text(cell) for cell in (*_cells(reach, s, tiers), s.verdict.status)))
    console.print(table)
    for s in ordered:
        if s.verdict.status not in ("ok", "published"):
            who = " ".join(filter(None, (what(s.key), s.key.kernel, f"{s.key.threads} thr" if s.key.threads else "")))
            console.print(Text(f"{who}: {s.verdict}", style="dim"))
    console.print(
        Text(
            "GB/s: median, 1e9 bytes that the program loads and stores a second. n: repeats that count/taken. "
            "n.t.: non-temporal stores. Reach comes from plain reads alone.",
            style="dim",
        )
    )
    console.print(Text(sentence(reach)))


def what(key: Key) -> str:
    """A series in a few words."""
    beside = f" beside {key.beside}" if key.beside else ""
    return f"{key.op or key.engine or 'both engines'}{_STORES[key.store]}{_ORDER[key.probe]}{beside}"


def _cells(reach: Reach, s: Series, tiers: bool) -> list[str]:
    key = s.key
    summary = s.summary if s.median is not None else None
    share = reach.share_of(s)
    counted = f"{len(s.values)}/" if reach.run.header.kind == "measured" else ""
    return [
        what(key),
        str(key.threads) if key.threads else "",
        *((key.tier,) if tiers else ()),
        key.kernel,
        _rate(summary) if summary else "none",
        f"{summary.low:.1f}-{summary.high:.1f}" if summary and summary.low is not None else "",
        f"{summary.spread:.1%}" if summary and summary.spread is not None else "",
        f"{counted}{s.taken}",
        f"{share:.0%}" if share is not None and key.probe in ("sweep", "contention") else "",
    ]


def _rate(summary: Summary) -> str:
    """The median; of a series with two modes both, because one median would describe neither."""
    return "/".join(f"{rate:.1f}" for rate in summary.modes or (summary.median,))


def sentence(reach: Reach) -> str:
    """The answer in one sentence, with its trust; refused numbers are not in it."""
    header, best = reach.run.header, reach.best
    if best is None or best.median is None or reach.verdict.status == "refused":
        return f"{header.chip} ({header.kind}): no read bandwidth to report. Verdict {reach.verdict}."
    threads = "1 thread" if best.key.threads == 1 else f"{best.key.threads} threads"
    text = f"{header.chip} ({header.kind}): the CPU reads {_told(best)} GB/s with {threads}"
    if reach.single is not None and reach.single.median is not None and best.key.threads > 1:
        text += f", {_told(reach.single)} GB/s with one"
    if reach.share is None:
        text += f"; its share of the bus is unknown, as the peak is ({header.bus_peak_source or 'no source'})"
    else:
        text += f"; that is {reach.share:.0%} of the bus peak of {reach.peak:g} GB/s"
    return f"{text}. Verdict {reach.verdict}."


def _told(s: Series) -> str:
    return "none" if s.summary is None else _rate(s.summary).replace("/", " or ")
