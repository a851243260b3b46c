"""A run in print: the table, and what it says in a sentence."""

from rich.console import Console
from rich.table import Table

from labkit.bus.points import Series
from labkit.bus.reach import Reach


def print_reach(reach: Reach, console: Console) -> None:
    """The table of all series, the verdict, and the sentence."""
    header = reach.run.header
    table = Table(title=f"{header.chip}: memory bandwidth of the CPU ({header.kind})", title_justify="left")
    for name in ("for", "op", "stores", "kernel", "threads", "tier"):
        table.add_column(name)
    for name in ("GB/s", "95 % interval", "spread", "n", "of peak"):
        table.add_column(name, justify="right")
    table.add_column("verdict", overflow="fold")
    for s in reach.series:
        table.add_row(*_cells(reach, s))
    console.print(table)
    console.print(
        "GB/s: median, 1e9 bytes the program loads and stores per second. n: repeats that count / taken. "
        "Reach is read from the reads alone.",
        style="dim",
    )
    console.print(f"verdict: {reach.verdict}", markup=False, highlight=False)
    console.print(sentence(reach), markup=False, highlight=False)


def _cells(reach: Reach, s: Series) -> list[str]:
    key, shown = s.key, s.median is not None
    summary = s.summary if shown else None
    share = reach.share_of(s)
    beside = f" beside {key.beside}" if key.beside else ""
    return [
        key.probe + beside,
        key.op or "both",
        key.store,
        key.kernel,
        str(key.threads) if key.threads else "",
        key.tier,
        f"{summary.median:.1f}" if summary else "none",
        f"{summary.low:.1f}-{summary.high:.1f}" if summary and summary.low is not None else "",
        f"{summary.spread:.1%}" if summary and summary.spread is not None else "",
        f"{len(s.values)}/{s.taken}" if reach.run.header.kind == "measured" else f"{s.taken}",
        f"{share:.0%}" if share is not None and key.probe in ("sweep", "contention") else "",
        str(s.verdict),
    ]


def sentence(reach: Reach) -> str:
    """The answer in one sentence, with its trust; refused numbers are not in it."""
    header, best = reach.run.header, reach.best
    if best is None or best.median is None or reach.verdict.status == "refused":
        return f"{header.chip} ({header.kind}): no read bandwidth to report, {reach.verdict}."
    threads = "1 thread" if best.key.threads == 1 else f"{best.key.threads} threads"
    text = f"{header.chip} ({header.kind}): the CPU reads {best.median:.1f} GB/s with {threads}"
    if reach.single is not None and reach.single.median is not None and best.key.threads > 1:
        text += f", one core {reach.single.median:.1f} GB/s"
    if reach.share is None:
        text += f"; the bus peak is unknown ({header.bus_peak_source or 'no source'}), so its share is too"
    else:
        text += f"; that is {reach.share:.0%} of the bus peak of {reach.peak:g} GB/s"
    return f"{text}; {reach.verdict}."
