"""The committed pictures and the table beside them."""

from figure_runs import falling, put_sequence
from report_stores import put_single_context

from common.runs.store import RunStore
from report.gallery import main

HAND_WRITTEN = {"bandits.md": "by hand", "sequence_tasks.md": "by hand", "llm_rlvr.md": "by hand"}


def small_store(root):
    store = RunStore(root)
    put_single_context(store, "tpo", 3, 0.3)
    put_single_context(store, "pg", 4, 0.2)
    put_sequence(store, "tpo", falling(3, 30, half_way=8), length=7)
    return store


def test_pictures_and_table_of_what_was_run_and_nothing_else_is_touched(tmp_path, capsys):
    store, out = small_store(tmp_path / "runs"), tmp_path / "results"
    out.mkdir()
    for name, words in HAND_WRITTEN.items():
        (out / name).write_text(words)
    assert main(["--store", str(store.root), "--out", str(out)]) == 0
    written = {path.rpartition("/")[2] for path in capsys.readouterr().out.split()}
    assert {"fig02.png", "fig07.png", "README.md"} <= written
    assert "fig03.png" not in written
    assert {path.name for path in out.iterdir()} == written | set(HAND_WRITTEN)
    for name, words in HAND_WRITTEN.items():
        assert (out / name).read_text() == words
    table = (out / "README.md").read_text()
    assert "![Fig. 2: single-context bandit, error and misalignment](fig02.png)" in table
    rows = [line for line in table.splitlines() if line.startswith("| ") and "0123456789ab" in line]
    assert rows
    assert all(" paper " in row for row in rows)
    assert not any(row.endswith("| not run |") for row in rows)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(["--store", str(store.root), "--out", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first


def test_an_empty_store_leaves_the_gallery_alone(tmp_path, capsys):
    out = tmp_path / "results"
    out.mkdir()
    (out / "README.md").write_text("the gallery")
    assert main(["--store", str(tmp_path / "nothing"), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds no finished run" in line
    assert "make bandits" in line
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("README.md", "the gallery")]
