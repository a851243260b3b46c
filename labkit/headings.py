"""From a tidy table to the one that a paper prints: headings for readers, figures rounded as they are trusted."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

# Column -> its heading, and how its values are printed. Rates are GB/s (1e9 bytes/s).
_KNOWN: dict[str, tuple[str, str]] = {
    "chip": ("Chip", "{}"),
    "kind": ("Kind", "{}"),
    "engine": ("Engine", "{}"),
    "op": ("Op", "{}"),
    "stores": ("Stores", "{}"),
    "tier": ("Tier", "{}"),
    "threads": ("Threads", "{:.0f}"),
    "gb_per_s": ("GB/s", "{:.1f}"),
    "low": ("95% from", "{:.1f}"),
    "high": ("to", "{:.1f}"),
    "bus_model_gb_per_s": ("On the bus (model)", "{:.1f}"),
    "one_core_gb_per_s": ("One core", "{:.1f}"),
    "cpu_alone": ("CPU alone", "{:.1f}"),
    "gpu_alone": ("GPU alone", "{:.1f}"),
    "cpu_beside_gpu": ("CPU beside GPU", "{:.1f}"),
    "gpu_beside_cpu": ("GPU beside CPU", "{:.1f}"),
    "together": ("Together", "{:.1f}"),
    "over_gpu_alone": ("Together / GPU alone", "{:.2f}"),
    "bus_peak_gb_per_s": ("Bus peak", "{:g}"),
    "share": ("Of the bus", "{:.0%}"),
    "verdict": ("Verdict", "{}"),
}

BESIDE = {"machine", "run_id", "reasons", "kernel", "n", "taken", "run_verdict", "earlier_runs"}
"""What stays in the data (CSV) beside the table."""


def for_paper(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """The table that a paper prints: known columns under their headings as text, others as they are.

    Columns without any value and those of BESIDE are left out; a missing value stays missing.
    """
    import pandas

    columns = {}
    for name in frame.columns:
        if name in BESIDE or frame[name].isna().all():
            continue
        heading, form = _KNOWN.get(name, (name, ""))
        values = frame[name].tolist()
        columns[heading] = [None if pandas.isna(v) else form.format(v) for v in values] if form else values
    return pandas.DataFrame(columns)
