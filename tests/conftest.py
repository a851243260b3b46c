"""Tests measure under a lock of their own: a measurement elsewhere on the machine is not their business."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_measuring_lock(tmp_path_factory):
    old = os.environ.get("LABKIT_MEASURING_LOCK")
    os.environ["LABKIT_MEASURING_LOCK"] = str(tmp_path_factory.mktemp("lock") / "measuring.lock")
    yield
    if old is None:
        del os.environ["LABKIT_MEASURING_LOCK"]
    else:
        os.environ["LABKIT_MEASURING_LOCK"] = old
