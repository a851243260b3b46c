"""Where things are."""

import pytest

from labkit import project


def test_the_root_is_the_nearest_folder_above_with_reference_data(tmp_path):
    (tmp_path / "data" / "reference").mkdir(parents=True)
    (tmp_path / "data" / "reference" / "chips.csv").touch()
    below = tmp_path / "notebooks" / "deep"
    below.mkdir(parents=True)
    assert project.root(below) == tmp_path
    assert project.root(tmp_path) == tmp_path


def test_outside_a_project_the_root_is_this_checkout(tmp_path):
    assert project.root(tmp_path) == project.PACKAGE.parent


def test_the_reference_data_come_with_labkit():
    assert (project.reference_dir() / "membw_cpu.csv").is_file()


@pytest.mark.parametrize(
    ("chip", "slug"),
    [
        ("Apple M4 Pro", "apple-m4-pro"),
        ("AMD EPYC", "amd-epyc"),
        ("Intel(R) Xeon(R) @ 2.20GHz", "intel-r-xeon-r-2-20ghz"),
    ],
)
def test_a_chip_has_a_folder_name(chip, slug):
    assert project.slug(chip) == slug


@pytest.mark.parametrize("chip", ["../../etc", "", "///", "a/b\x00"])
def test_no_chip_name_leads_out_of_its_folder(chip):
    assert set(project.slug(chip)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert project.slug(chip)
