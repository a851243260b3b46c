"""The figures in git are what the code draws of the published data, byte for byte, whatever this machine measured."""

import json
import platform

import pytest

from labkit import batch, figures, project

pytestmark = pytest.mark.slow

ROOT = project.PACKAGE.parent
DRAWN = ROOT / "figures" / "published"
CHIP = "Apple M4 Pro"


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """The chip's figures, drawn again beside the committed ones."""
    folder = tmp_path_factory.mktemp("figures")
    report = batch.run(
        ["20_bus_reach"], [CHIP], data_dir=ROOT / "data" / "reference", figures_dir=folder, progress=False
    )
    assert report.exit_code == 0, report
    return folder / project.slug(CHIP)


COMMITTED = sorted(path for path in (DRAWN / project.slug(CHIP)).glob("*.json") if "done" not in path.name)


def test_there_are_committed_figures():
    assert {path.stem for path in COMMITTED} == {"reach", "engines", "contention", "verdicts"}


@pytest.mark.parametrize("sidecar", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_figure_is_rebuilt_byte_for_byte(sidecar, rebuilt):
    old, new = (json.loads((folder / sidecar.name).read_text()) for folder in (sidecar.parent, rebuilt))
    assert new["provenance"] == old["provenance"], "run `make paper` and commit the figures with the code"
    # Another processor may round a coordinate's last digit differently.
    drawn_alike = new["versions"] == old["versions"] and platform.machine() == "x86_64"
    for name in old["sha256"]:
        if drawn_alike or name.endswith((".csv", ".tex")):
            assert (rebuilt / name).read_bytes() == (sidecar.parent / name).read_bytes(), name
    if not drawn_alike:
        pytest.skip(f"pictures not compared: drawn with {old['versions']} on x86_64, here is {new['versions']}")


@pytest.mark.parametrize("chip", ["apple-m4-pro", "apple-m5-max"])
def test_every_committed_picture_says_that_it_is_published_and_names_its_run(chip):
    pictures = [path for path in (DRAWN / chip).iterdir() if path.suffix in (".pdf", ".png")]
    assert len(pictures) == 6
    for path in pictures:
        said = figures.provenance_of(path)
        assert said.kinds == ("published",)
        assert all(run_id.startswith("published-") for run_id in said.run_ids)
