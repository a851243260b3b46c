"""Figures: the same bytes from the same inputs, and files that tell where they come from."""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import atomic, figures
from labkit.errors import BadInput, Refused
from labkit.latex import booktabs, escape

PROVENANCE = figures.Provenance(
    notebook="20_bus_reach",
    kinds=("measured", "published"),
    run_ids=("20261130T200000Z-bus-1", "20261130T210000Z-bus-2"),
    data="0" * 64,
    code=None,
    parameters={"chip": "Apple (M4) \\ µ", "quick": True, "threads": [1, 2]},
)
DATA = pd.DataFrame({"threads": [1, 2], "read_bandwidth_GB/s": [0.1 + 0.2, 1 / 3]})


def drawn(kinds=("measured", "published")):
    from matplotlib.figure import Figure

    with figures.style():
        fig = Figure()
        ax = fig.subplots()
        for i in range(len(figures.SERIES)):
            ax.plot([1, 2, 3], [1, 1 + i / 2, 2 + i], label=f"series {i}", **figures.series_style(i))
        ax.set(xlabel="threads", ylabel="read bandwidth (GB/s)")
        ax.legend()
        if kinds:
            figures.label_kind(fig, kinds)
    return fig


def saved(folder, **changed):
    given = {"name": "reach", "folder": folder, "data": DATA, "provenance": PROVENANCE, **changed}
    return figures.save(given.pop("fig", None) or drawn(), given.pop("name"), **given)


def python(code, *arguments, **environment):
    """Run code that may use this module's helpers in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment},
        capture_output=True,
        text=True,
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- what is written


def crowded():
    """Panels, a colour bar and an outside legend: a layout that moves a little at each drawing."""
    from matplotlib.figure import Figure

    with figures.style("double", aspect=0.8):
        fig = Figure()
        axs = fig.subplots(2, 2, sharex=True)
        for i, ax in enumerate(axs.flat):
            for k in range(3):
                ax.plot(np.arange(5) * 10**i, np.arange(5) ** k * 10**i, label=f"s{k}", **figures.series_style(k))
            ax.set(ylabel="GB/s", title="x" * i)
        axs[0, 0].legend()
        fig.colorbar(axs[1, 1].imshow(np.eye(3)), ax=axs[1, 1])
        fig.legend(loc="outside upper right")
        figures.label_kind(fig, PROVENANCE.kinds)
    return fig


def test_two_processes_write_the_same_bytes_also_when_one_has_shown_the_figure(tmp_path):
    code = """if True:
        import io, sys, pathlib, msgspec, test_figures
        fig, provenance = test_figures.crowded(), test_figures.PROVENANCE
        if sys.argv[2] == "shown":
            fig.savefig(io.BytesIO(), dpi=72, bbox_inches="tight")
            turned = dict(reversed(provenance.parameters.items()))
            provenance = msgspec.structs.replace(provenance, parameters=turned)
        test_figures.saved(pathlib.Path(sys.argv[1]), fig=fig, provenance=provenance)
    """
    for folder, how, seed, zone in (("a", "fresh", "1", "UTC"), ("b", "shown", "2", "Asia/Tokyo")):
        ran = python(code, tmp_path / folder, how, PYTHONHASHSEED=seed, TZ=zone)
        assert ran.returncode == 0, ran.stderr
    first = contents(tmp_path / "a")
    assert sorted(first) == [f"reach.{end}" for end in ("csv", "json", "pdf", "png", "tex")]
    assert contents(tmp_path / "b") == first


def test_files_differ_when_the_data_do(tmp_path):
    saved(tmp_path / "a")
    saved(tmp_path / "b", data=DATA + 1)
    assert contents(tmp_path / "a")["reach.csv"] != contents(tmp_path / "b")["reach.csv"]
    assert contents(tmp_path / "a")["reach.json"] != contents(tmp_path / "b")["reach.json"]


def test_fonts_are_truetype_at_paper_width_whatever_style_was_set(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"pdf.fonttype": 3, "savefig.bbox": "tight"}):
        pdf, png, *_ = saved(tmp_path)
    assert b"/Type3" not in pdf.read_bytes()
    if shutil.which("pdffonts"):
        listing = subprocess.run(["pdffonts", pdf], capture_output=True, text=True, check=True).stdout
        fonts = listing.splitlines()[2:]
        assert fonts
        assert all("TrueType" in line for line in fonts), listing
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf.read_bytes())
    assert float(box[1]) == 3.25 * 72
    from PIL import Image

    with Image.open(png) as image:
        assert image.size[0] == int(3.25 * 300)


def test_no_file_holds_a_date_a_path_or_a_host_name(tmp_path):
    import socket

    paths = saved(tmp_path)
    for path in paths:
        content = path.read_bytes()
        for secret in (str(tmp_path), str(Path.home()) + "/", socket.gethostname()):
            assert secret.encode() not in content, (path, secret)
        assert b"CreationDate" not in content
        assert b"Matplotlib v" not in content


def test_sidecar_holds_hashes_of_the_other_files_and_versions(tmp_path):
    *others, sidecar = saved(tmp_path)
    content = json.loads(sidecar.read_text())
    assert content["sha256"] == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in others}
    assert set(content["versions"]) == {"matplotlib"}
    assert set(content) == {"provenance", "sha256", "versions"}


def test_provenance_is_read_back_from_pdf_png_and_sidecar(tmp_path):
    pdf, png, csv, _, sidecar = saved(tmp_path)
    for path in (pdf, png, sidecar):
        assert figures.provenance_of(path) == PROVENANCE
    with pytest.raises(BadInput, match=r"\.pdf, \.png and \.json"):
        figures.provenance_of(csv)


def test_a_pdf_reader_sees_the_provenance(tmp_path):
    if not shutil.which("pdfinfo"):
        pytest.skip("pdfinfo (poppler-utils) is not installed")
    info = subprocess.run(["pdfinfo", saved(tmp_path)[0]], capture_output=True, text=True, check=True).stdout
    keywords = re.search(r"^Keywords:\s+(.*)$", info, re.MULTILINE)[1]
    assert msgspec.json.decode(keywords, type=figures.Provenance) == PROVENANCE


@pytest.mark.parametrize("name", ["x.pdf", "x.png", "x.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\x89PNG\r\n\x1a\n", b"%PDF-1.4 /Keywords (no\\)", b"\xff"])
def test_a_foreign_file_has_no_provenance_and_says_so(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match="holds no labkit provenance"):
        figures.provenance_of(tmp_path / name)


def test_a_foreign_png_has_no_provenance(tmp_path):
    drawn().savefig(tmp_path / "x.png")
    with pytest.raises(BadInput, match="holds no labkit provenance"):
        figures.provenance_of(tmp_path / "x.png")


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_floats_in_the_csv_read_back_exactly(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("csv")
    csv, *_ = figures.save_table(pd.DataFrame({"v": values}), "t", folder=folder, provenance=PROVENANCE)
    assert csv.name == "t.csv"
    assert pd.read_csv(csv, dtype=float)["v"].tolist() == values


def test_a_named_index_is_data_and_row_numbers_are_not(tmp_path):
    grouped = DATA.set_index("threads")
    figures.save_table(grouped, "named", folder=tmp_path, provenance=PROVENANCE)
    figures.save_table(pd.concat([DATA, DATA]), "numbers", folder=tmp_path, provenance=PROVENANCE)
    header = "threads,read_bandwidth_GB/s"
    assert (tmp_path / "named.csv").read_text().splitlines()[0] == header
    assert (tmp_path / "numbers.csv").read_text().splitlines()[0] == header
    assert sorted(p.suffix for p in tmp_path.glob("named.*")) == [".csv", ".json", ".tex"]


# --- LaTeX


def test_latex_escapes_headings_cells_and_caption_and_states_the_kind(tmp_path):
    table = pd.DataFrame({"share_of_bus (%)": [0.913, np.nan], "load_avx & {co}": ["50_%", "a#b$c"]})
    paths = saved(tmp_path, table=table, caption="Reach of M4_Pro, 91 % & more")
    tex = paths[3].read_text()
    assert r"share\_of\_bus (\%) & load\_avx \& \{co\} \\" in tex
    assert r"0.913 & 50\_\% \\" in tex
    assert r"-- & a\#b\$c \\" in tex  # missing is never 0
    assert r"\caption{Reach of M4\_Pro, 91 \% \& more. Kind: measured, published.}" in tex
    assert r"\toprule" in tex
    assert r"\bottomrule" in tex
    assert r"\label{tab:reach}" in tex


def test_latex_shows_three_digits_and_the_whole_integer_part():
    values = [273.456, 88.31, 0.9134, 1234567.8, 0.0, 3e-7, float("inf"), -0.5]
    body = booktabs(pd.DataFrame({"v": values})).split(r"\midrule")[1]
    cells = [line.removesuffix(r" \\") for line in body.splitlines() if line.endswith(r"\\")]
    assert cells == ["273", "88.3", "0.913", "1234568", "0", r"$3.00 \times 10^{-7}$", r"$\infty$", "-0.500"]


@given(st.text(alphabet="ab&%$#_{}\\~^<> "))
def test_escaped_text_holds_no_active_character(text):
    rest = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]", "", escape(text))
    assert not set(rest) & set("&%$#_{}\\~^<>")
    assert escape("50_%") == r"50\_\%"


# --- what is refused


def test_empty_data_are_refused(tmp_path):
    with pytest.raises(Refused, match="nothing to draw: the data are empty"):
        saved(tmp_path / "x", data=DATA.iloc[:0])
    with pytest.raises(Refused, match="nothing to draw"):
        figures.save_table(DATA.iloc[:0], "t", folder=tmp_path, provenance=PROVENANCE)
    assert not (tmp_path / "x").exists()


def test_a_figure_without_axes_is_refused(tmp_path):
    from matplotlib.figure import Figure

    with pytest.raises(Refused, match="no axes"):
        saved(tmp_path, fig=Figure())


@pytest.mark.parametrize(("labelled", "missing"), [((), "measured and published"), (("measured",), "published")])
def test_a_figure_that_does_not_show_its_kind_is_refused(tmp_path, labelled, missing):
    with pytest.raises(BadInput, match=f"does not say that it shows {missing} values"):
        saved(tmp_path, fig=drawn(labelled))
    assert not list(tmp_path.iterdir())


def test_a_hidden_kind_does_not_count_and_a_part_of_a_word_neither(tmp_path):
    only = msgspec.structs.replace(PROVENANCE, kinds=("model",))
    fig = drawn(())
    fig.axes[0].set_title("modelled")
    with pytest.raises(BadInput, match="model"):
        saved(tmp_path, fig=fig, provenance=only)
    fig.axes[0].set_title("model", visible=False)
    with pytest.raises(BadInput, match="model"):
        saved(tmp_path, fig=fig, provenance=only)


def test_an_axes_can_carry_the_kind_and_nothing_lies_outside_the_page(tmp_path):
    fig = drawn(())
    figures.label_kind(fig.axes[0], ("measured", "published"), "Apple M4 Pro")
    assert len(saved(tmp_path, fig=fig)) == 5
    fig.draw_without_rendering()
    label = next(t for t in fig.axes[0].texts if "measured" in t.get_text())
    page, box = fig.bbox, label.get_window_extent()
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0 <= box.y1 <= page.y1


@pytest.mark.parametrize("kinds", [(), ("guessed",), "measured"])
def test_an_unknown_kind_is_refused(tmp_path, kinds):
    with pytest.raises(BadInput, match="measured, published, emulated, model"):
        figures.label_kind(drawn(()), kinds)
    with pytest.raises(BadInput, match="measured, published, emulated, model"):
        saved(tmp_path, provenance=msgspec.structs.replace(PROVENANCE, kinds=kinds))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.pdf", "Über", "two words", "-x", "x\n"])
def test_a_name_that_is_not_a_plain_slug_is_refused(tmp_path, name):
    with pytest.raises(BadInput, match="figure name"):
        saved(tmp_path, name=name)


@pytest.mark.parametrize("value", ["/home/me/data", "~/data", {"deep": ["C:\\data"]}, float("nan"), object()])
def test_provenance_with_a_path_or_without_a_json_form_is_refused(tmp_path, value):
    with pytest.raises(BadInput, match="provenance"):
        saved(tmp_path, provenance=msgspec.structs.replace(PROVENANCE, parameters={"data_dir": value}))
    assert not list(tmp_path.iterdir())


# --- faults


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(atomic.CannotWrite, match=r"could not write reach.pdf .* in .*deeper: Not a directory"):
        saved(tmp_path / "file" / "deeper")


FILL = """if True:
    import pathlib, resource, sys, test_figures
    from labkit.errors import LabkitError
    folder, limit = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    fig = test_figures.drawn()
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        test_figures.saved(folder, fig=fig, data=test_figures.DATA * 2)
    except LabkitError as error:
        print(error)
        sys.exit(error.exit_code)
"""


def assert_full_disk_leaves_the_earlier_figure(folder, limit):
    saved(folder)
    before = contents(folder)
    if not limit:  # leave room for the first files of the next save, but not for all
        free = os.statvfs(folder)
        kept = sum(map(len, before.values())) - 4096
        (folder / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - kept))
        before["ballast"] = (folder / "ballast").read_bytes()
    ran = python(FILL, folder, limit)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "no space left" in ran.stdout
    assert re.search(r"reach\.(pdf|png|csv|tex|json)", ran.stdout)
    assert contents(folder) == before  # nothing replaced, no temporary file left


def test_a_full_disk_leaves_the_earlier_figure_and_names_the_file(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        sys.platform == "linux"
        and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode
        == 0
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root on Linux; the size limit test covers the same path")
    try:
        assert_full_disk_leaves_the_earlier_figure(disk, limit=0)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_size_limit_leaves_the_earlier_figure_and_names_the_file(tmp_path):
    saved(tmp_path / "probe")
    sizes = sorted(path.stat().st_size for path in (tmp_path / "probe").iterdir())
    assert_full_disk_leaves_the_earlier_figure(tmp_path / "disk", limit=sizes[-1] - 1)  # the PNG hits it


# --- style


def lightness(color):
    """CIE L* (0 to 100) of an sRGB colour: what is left of it in grey."""
    return lab(linear(color))[0]


def linear(color):
    from matplotlib.colors import to_rgb

    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.95047, 1, 1.08883], 1e-9, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_series_can_be_told_apart_in_grey_by_marker_and_by_line():
    light = [lightness(s.color) for s in figures.SERIES]
    apart = [abs(a - b) for a, b in itertools.combinations(light, 2)]
    assert min(apart) > 9  # a just noticeable difference is about 1, of lines far apart on a page several
    assert min(abs(a - b) for a, b in itertools.pairwise(light)) > 20
    assert max(light) < 80  # all stand out from white paper
    assert len({s.marker for s in figures.SERIES}) == len({s.linestyle for s in figures.SERIES}) == len(light)


# Full colour blindness, on linear RGB: Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), table 1, severity 1.0.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("blind", BLIND)
def test_series_can_be_told_apart_by_the_colour_blind(blind):
    seen = [lab(np.clip(np.array(BLIND[blind]) @ linear(s.color), 0, 1)) for s in figures.SERIES]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20  # CIE76 difference


def test_there_is_no_series_beyond_the_last():
    with pytest.raises(BadInput, match="split the figure"):
        figures.series_style(len(figures.SERIES))


def test_style_is_undone_after_the_block_and_kept_by_apply_style():
    import matplotlib

    with matplotlib.rc_context():
        before = dict(matplotlib.rcParams)
        with figures.style("double", aspect=0.3):
            assert matplotlib.rcParams["figure.figsize"] == [6.75, 6.75 * 0.3]
        assert dict(matplotlib.rcParams) == before
        figures.apply_style()
        assert matplotlib.rcParams["figure.figsize"] == [3.25, 3.25 * 0.62]
        assert matplotlib.rcParams["pdf.fonttype"] == matplotlib.rcParams["ps.fonttype"] == 42
        assert matplotlib.rcParams["font.size"] == 8
        assert not matplotlib.rcParams["axes.spines.top"]
    with pytest.raises(BadInput, match="single or double"), figures.style("triple"):
        pass


def test_importing_figures_loads_neither_matplotlib_nor_pandas():
    ran = python("import sys, labkit.figures; print({'matplotlib', 'pandas', 'numpy', 'PIL'} & set(sys.modules))")
    assert ran.stdout.strip() == "set()", ran.stdout + ran.stderr
