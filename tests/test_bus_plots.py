"""Figures show what their tables hold, and say which kind of truth it is."""

from pathlib import Path

import matplotlib
import pytest
from runs import good, run, series

from labkit import project, records
from labkit.bus import plots, views
from labkit.figures import style

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def clean_figures():
    with style():
        yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def m4():
    runs, _ = records.read_all(Path(project.PACKAGE.parent / "data"))
    return views.subjects([r for r in runs if r.header.chip == "Apple M4 Pro" and r.header.kind == "published"])


@pytest.fixture(scope="module")
def mine():
    copies = series(40, quantity="stream_bandwidth", op="copy", store="regular", threads=2)
    return views.subjects([run([*good(), *copies])])


def texts(fig):
    fig.draw_without_rendering()
    return " | ".join(t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_visible())


def test_the_curve_draws_every_point_with_units_peak_and_kind(m4):
    frame = views.curve(m4)
    fig = plots.plot_curve(frame)
    drawn = [tuple(point) for line in fig.axes[0].lines for point in zip(*line.get_data(), strict=True)]
    for threads, rate in zip(frame["threads"], frame["gb_per_s"], strict=True):
        assert (threads, rate) in drawn
    for word in ("(GB/s)", "threads", "bus peak 273 GB/s", "published", "without interval"):
        assert word in texts(fig)


def test_measured_points_carry_their_intervals(mine):
    frame = views.curve(mine)
    fig = plots.plot_curve(frame)
    (bars,) = [c for c in fig.axes[0].containers if hasattr(c, "has_yerr")]
    ends = sorted(end for segment in bars[2][0].get_segments() for end in segment[:, 1])
    assert ends == pytest.approx(sorted([*frame["low"], *frame["high"]]))
    assert "95 % intervals" in texts(fig)


def test_store_bars_keep_model_and_measurement_apart(mine):
    fig = plots.plot_stores(views.stores(mine))
    assert sorted(bar.get_height() for bar in fig.axes[0].patches) == [20, 40]
    assert "measured + model" in texts(fig)


def test_shares_are_of_each_machine_s_own_bus(m4):
    frame = plots.fastest_tier(views.curve(m4))
    fig = plots.plot_share(frame)
    assert set(frame["tier"]) == {"performance"}
    assert max(fig.axes[0].lines[0].get_ydata()) == pytest.approx(249.5 / 273)


def test_engines_and_contention_name_what_they_compare(m4):
    assert "GPU, max" in texts(plots.plot_engines(views.engines(m4)))
    assert "1.05 x GPU" in texts(plots.plot_contention(views.contention(m4)))


def test_unreliable_series_are_counted_on_the_figure():
    rows = good(two=series(60, threads=2, pressure=0.5), two_numpy=[])
    assert "1 of 2 unreliable" in texts(plots.plot_curve(views.curve(views.subjects([run(rows)]))))


def test_a_run_that_is_unreliable_as_a_whole_says_so_on_its_figure():
    busy = run(good(), before={"unquiet": ["other work uses 90% of the 2 usable CPUs"]})
    assert "run unreliable" in texts(plots.plot_curve(views.curve(views.subjects([busy]))))


def test_more_machines_than_can_be_told_apart_are_counted():
    found = views.subjects([run(good(rates=(30 + n, 50 + n)), machine=f"{n:012d}", run_id=f"r{n}") for n in range(8)])
    assert "2 more in the data" in texts(plots.plot_curve(views.curve(found)))


def test_two_machines_of_one_chip_have_two_names():
    found = views.subjects([run(good()), run(good(), machine="ffffffffffff", run_id="r2")])
    shown = texts(plots.plot_curve(views.curve(found)))
    assert "Test Chip [012345]" in shown
    assert "Test Chip [ffffff]" in shown
