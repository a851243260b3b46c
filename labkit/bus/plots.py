"""The bus primitive's figures, each from one of the tables in labkit.bus.views."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from labkit.figures import SERIES, label_kind, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

# Not "P cores" and "E cores": a QoS class is a hint, and published runs did not read back where it led.
_TIERS = {
    "performance": "high QoS",
    "background": "background QoS",
    "efficiency": "background QoS",
    "all": "all cores",
}

# How the bus peak is drawn and named in every figure.
_PEAK_LINE: dict[str, Any] = {"color": "#444444", "linewidth": 0.8, "linestyle": (0, (2, 2))}
_PEAK_TEXT: dict[str, Any] = {
    "xytext": (0, 2),
    "textcoords": "offset points",
    "va": "bottom",
    "fontsize": 6,
    "color": "#444444",
}


def kinds_of(frame: "DataFrame") -> tuple[str, ...]:
    """The kinds of truth in a table, sorted."""
    return tuple(sorted(frame["kind"].unique()))


def plot_curve(frame: "DataFrame") -> "Figure":
    """Read bandwidth over threads, a line per machine and tier with the medians' intervals (frame: views.curve).

    The bus peak is drawn where all lines are of one chip.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    names = machine_names(frame)
    lines = _strongest_first(frame, ["chip", "machine", "tier"])
    for i, ((chip, machine, tier), part) in enumerate(lines[: len(SERIES)]):
        name = _TIERS.get(tier, tier)
        _line(ax, part, "gb_per_s", f"{names[chip, machine]}, {name}" if len(names) > 1 else name, i)
    if frame["chip"].nunique() == 1:
        for peak in frame["bus_peak_gb_per_s"].dropna().unique():
            _peak(ax, peak)
    _threads(ax, frame)
    ax.set_ylabel("CPU reads (GB/s)")
    ax.set_ylim(bottom=0)
    ax.margins(y=0.12)
    ax.legend()
    label_kind(fig, kinds_of(frame), _trust(frame, len(lines)))
    return fig


def plot_share(frame: "DataFrame") -> "Figure":
    """Share of the bus peak over threads, a line per machine (frame: views.curve, one tier each, peaks known)."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    names = machine_names(frame)
    lines = _strongest_first(frame, ["chip", "machine"])
    for i, ((chip, machine), part) in enumerate(lines[: len(SERIES)]):
        _line(ax, part, "share", names[chip, machine], i)
    _threads(ax, frame)
    ax.set_ylabel("share of the bus")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_ylim(0, 1)
    ax.legend()
    label_kind(fig, kinds_of(frame), _trust(frame, len(lines)))
    return fig


def machine_names(frame: "DataFrame") -> dict[tuple[str, str], str]:
    """A legend's name for each (chip, machine): the chip, told apart by machine where there are several."""
    machines = frame[["chip", "machine"]].drop_duplicates()
    several = machines["chip"].value_counts()
    return {
        (chip, machine): chip if several[chip] == 1 else f"{chip} [{machine[:6]}]"
        for chip, machine in machines.itertuples(index=False)
    }


def fastest_tier(frame: "DataFrame") -> "DataFrame":
    """The lines of each machine's tier with the highest rate."""
    best = frame.loc[frame.groupby(["chip", "machine"])["gb_per_s"].idxmax(), ["chip", "machine", "tier"]]
    return frame.merge(best, on=["chip", "machine", "tier"])


def plot_stores(frame: "DataFrame") -> "Figure":
    """Copy and triad at the largest thread count: program bytes solid, the model's write-allocate traffic on top."""
    import matplotlib.pyplot as plt
    import numpy

    part = frame[frame["threads"] == frame["threads"].max()]
    fig, ax = plt.subplots()
    places = numpy.arange(len(part))
    counted, modelled = series_style(0)["color"], series_style(1)["color"]
    extra = part["bus_model_gb_per_s"] - part["gb_per_s"]
    ax.bar(places, part["gb_per_s"], 0.6, color=counted, label="bytes the program moves (measured)")
    ax.bar(
        places,
        extra,
        0.6,
        bottom=part["gb_per_s"],
        color=modelled,
        hatch="///",
        edgecolor="white",
        label="write-allocate traffic (model)",
    )
    _whiskers(ax, places, part)
    ax.set_xticks(places, [f"{op}\n{stores}" for op, stores in zip(part["op"], part["stores"], strict=True)])
    ax.set_ylabel(f"GB/s, {int(part['threads'].iloc[0])} threads")
    ax.set_ylim(top=float((part["gb_per_s"] + extra).max()) * 1.35)
    ax.legend(loc="upper left")
    label_kind(fig, (*kinds_of(part), "model"), _trust(part))
    return fig


def plot_engines(frame: "DataFrame") -> "Figure":
    """One core, the best thread count and the GPU's operations, alone, and the bus peak (frame: views.engines)."""
    import matplotlib.pyplot as plt
    import numpy

    fig, ax = plt.subplots()
    peak = _one_peak(frame)
    places = numpy.arange(len(frame))[::-1]
    colors = [series_style(0 if name.startswith("CPU") else 1)["color"] for name in frame["engine"]]
    ax.barh(places, frame["gb_per_s"], 0.6, color=colors, edgecolor="black", linewidth=0.4)
    back = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for place, rate, share in zip(places, frame["gb_per_s"], frame["share"], strict=True):
        text = f"{rate:.1f}" + (f" ({share:.0%})" if share == share and share is not None else "")
        ax.annotate(
            text, (rate, place), xytext=(2, 0), textcoords="offset points", va="center", fontsize=6, bbox=back, zorder=3
        )
    if peak is not None:
        ax.axvline(peak, **_PEAK_LINE, zorder=1)
        ax.annotate(
            f"peak {peak:g}",
            (peak, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            **_PEAK_TEXT,
        )
    ax.set_yticks(places, [f"{engine}{told}" for engine, told in zip(frame["engine"], _told(frame), strict=True)])
    ax.set_xlabel("bandwidth alone (GB/s)")
    ax.set_xlim(0, max(float(frame["gb_per_s"].max()), peak or 0) * 1.22)
    ax.grid(axis="y", visible=False)
    label_kind(ax, kinds_of(frame), _trust(frame))
    return fig


def plot_contention(frame: "DataFrame") -> "Figure":
    """The CPU and the GPU alone, and both at once stacked, by CPU thread count (frame: views.contention)."""
    import matplotlib.pyplot as plt
    import numpy

    fig, ax = plt.subplots()
    peak = _one_peak(frame)
    cpu, gpu = series_style(0)["color"], series_style(1)["color"]
    places = numpy.arange(len(frame), dtype=float)
    edge = {"edgecolor": "black", "linewidth": 0.4}
    ax.bar(places - 0.27, frame["cpu_alone"], 0.24, color=cpu, label="CPU", **edge)
    ax.bar(places, frame["gpu_alone"], 0.24, color=gpu, label="GPU", **edge)
    ax.bar(places + 0.27, frame["gpu_beside_cpu"], 0.24, color=gpu, **edge)
    ax.bar(places + 0.27, frame["cpu_beside_gpu"], 0.24, bottom=frame["gpu_beside_cpu"], color=cpu, **edge)
    if peak is not None:
        ax.axhline(peak, **_PEAK_LINE, label="bus peak")
    ax.set_xticks(
        [place + offset for place in places for offset in (-0.27, 0, 0.27)],
        [
            name
            for threads, ratio, told in zip(frame["threads"], frame["over_gpu_alone"], _told(frame), strict=True)
            for name in (f"CPU{told}\n{threads} thr", "GPU", f"both,\n{ratio:.2f} x GPU")
        ],
    )
    ax.set_ylabel("bandwidth (GB/s)")
    ax.set_ylim(0, max(float(frame["together"].max()), peak or 0) * 1.3)
    ax.legend(ncols=3, loc="upper left")
    ax.grid(axis="x", visible=False)
    label_kind(
        fig,
        kinds_of(frame),
        "counted in the common window" if "measured" in kinds_of(frame) else "contended rates solved for",
    )
    return fig


def _strongest_first(frame: "DataFrame", by: list[str]) -> "list[tuple[tuple[str, ...], DataFrame]]":
    """Groups by their highest rate: the first series style is the strongest, and a machine keeps its own."""
    return sorted(frame.groupby(by, sort=False), key=lambda group: -group[1]["gb_per_s"].max())


def _told(frame: "DataFrame") -> list[str]:
    """What tells machines of one chip apart, per line: '' where there is one machine."""
    if frame["machine"].nunique() == 1:
        return [""] * len(frame)
    return [f" [{machine[:6]}]" for machine in frame["machine"]]


def _one_peak(frame: "DataFrame") -> float | None:
    peaks = frame["bus_peak_gb_per_s"].dropna().unique()
    return float(peaks[0]) if len(peaks) == 1 else None


def _peak(ax: "Axes", peak: float) -> None:
    ax.axhline(peak, **_PEAK_LINE)
    ax.annotate(
        f"bus peak {peak:g} GB/s",
        (1, peak),
        xycoords=("axes fraction", "data"),
        ha="right",
        **_PEAK_TEXT,
    )


def _line(ax: "Axes", part: "DataFrame", column: str, label: str, i: int) -> None:
    style = series_style(i)
    part = part.sort_values("threads")
    scale = part[column] / part["gb_per_s"]
    known = part["low"].notna()
    if known.any():
        errors = [(part["gb_per_s"] - part["low"]) * scale, (part["high"] - part["gb_per_s"]) * scale]
        ax.errorbar(
            part["threads"],
            part[column],
            yerr=[e.astype(float).fillna(0) for e in errors],
            capsize=2,
            label=label,
            elinewidth=0.8,
            **style,
        )
    else:
        ax.plot(part["threads"], part[column], label=label, **style)


def _whiskers(ax: "Axes", places: Iterable[float], part: "DataFrame") -> None:
    known = part["low"].notna()
    if known.all():
        errors = [part["gb_per_s"] - part["low"], part["high"] - part["gb_per_s"]]
        ax.errorbar(
            places,
            part["gb_per_s"],
            yerr=[e.astype(float) for e in errors],
            fmt="none",
            ecolor="black",
            elinewidth=0.8,
            capsize=2,
        )


def _threads(ax: "Axes", frame: "DataFrame") -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("threads")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(0.5, int(frame["threads"].max()) + 0.5)


def _trust(frame: "DataFrame", lines: int = 0) -> str:
    """What stands beside the kind: whether bars are intervals, what is unreliable, which lines are left out."""
    words = [f"{lines - len(SERIES)} more in the data"] if lines > len(SERIES) else []
    if frame["low"].notna().any():
        words.append("medians, 95 % intervals")
    elif (frame["kind"] == "published").all():
        words.append("medians without interval" if (frame["n"] > 1).all() else "as published")
    shaky = int((frame["verdict"] == "unreliable").sum())
    if shaky:
        words.append(f"{shaky} of {len(frame)} unreliable")
    elif (frame["run_verdict"] == "unreliable").any():
        words.append("run unreliable")
    return ", ".join(words)
