"""Pages built from small stores, and a browser to look at them."""

import sys
from pathlib import Path

import pytest
from browser import open_browser
from report_stores import OWN, OWN_SOURCE, mixed_store

from common.runs.store import RunStore
from report.__main__ import main


@pytest.fixture(scope="session")
def own_objective(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objectives")
    (folder / f"{OWN.partition(':')[0]}.py").write_text(OWN_SOURCE)
    sys.path.insert(0, str(folder))
    yield OWN
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def store(tmp_path_factory, own_objective):
    return mixed_store(tmp_path_factory.mktemp("mixed") / "runs")


@pytest.fixture(scope="session")
def page(store, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report")
    assert main(["--store", str(store.root), "--out", str(out)]) == 0
    return out / "index.html"


@pytest.fixture(scope="session")
def empty_page(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("empty")
    assert main(["--store", str(RunStore(out / "nothing").root), "--out", str(out / "reports")]) == 0
    return out / "reports" / "index.html"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
