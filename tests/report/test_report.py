"""What stands on the page, whatever the store holds."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from figure_runs import put
from report_stores import bandit_metrics, put_single_context

from bandits.single_context import SingleContext
from common.runs.store import RunStore
from common.statistics import Verdict
from figures.catalogue import FIGURES
from figures.comparison import Comparison
from figures.judged import JudgedClaim
from report import cost
from report.__main__ import main
from report.disagreements import disagreements
from report.own_objectives import contests
from report.page import gather, render
from report.sections import about_figures, chosen_runs
from report.stored import holdings
from report.summary import row_of, verdict_counts
from report.wording import hours, spread

PARTS = [
    Comparison(
        "TPO at H = 7", "Table 3", 1.3, 1.5, 1.0, 2.0, 20, "paper", Verdict.REPRODUCED, "python -m a preset=paper", 0.2
    ),
    Comparison(
        "TPO at H = 8", "Table 3", 2.4, 9.0, 8.0, 9.9, 4, "quick", Verdict.REDUCED, "python -m a preset=paper", 0.5
    ),
    Comparison("TPO at H = 9", "Table 3", 3.5, None, None, None, 0, None, Verdict.NOT_RUN, "python -m b preset=paper"),
]


def judged(*parts, verdict=Verdict.REDUCED):
    return JudgedClaim("tpo", "TPO at every H", "Table 3", "fig07", verdict, parts)


def test_a_claim_of_several_parts_says_what_they_say():
    row = row_of(judged(*PARTS))
    assert (row.paper, row.ours) == ("1.3, 2.4, 3.5", "1.5, 9, –")
    assert (row.seeds, row.fewest_seeds, row.preset) == ("4–20", 4, "paper, quick")
    assert row_of(judged(*PARTS * 20)).paper == "1.3, 2.4, 3.5"
    wordy = [dataclasses.replace(part, paper=f"{part.claim} is the lowest") for part in PARTS]
    assert row_of(judged(*wordy)).paper == "3 parts"
    assert row_of(judged(*wordy)).ours == "1 reproduced, 1 reduced and 1 not run"
    assert [part.ours for part in row.parts] == ["1.50 ± 0.20", "9.00 ± 0.50", "–"]
    assert row.commands == (
        ("made by", "python -m a preset=paper"),
        ("made by", "python -m a preset=quick seeds=4"),
        ("at full size", "python -m b preset=paper"),
    )


def test_a_claim_of_one_part_shows_it():
    row = row_of(judged(PARTS[0], verdict=Verdict.REPRODUCED))
    assert (row.paper, row.ours, row.interval, row.seeds) == ("1.3", "1.50 ± 0.20", "1 … 2", "20")
    assert row.parts == ()
    counts = verdict_counts([row])
    assert set(counts) == set(Verdict)
    assert {verdict for verdict, count in counts.items() if count} == {Verdict.REPRODUCED}


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (1.234, "1.23 s"), (600, "10 min"), (9000, "2.5 h"), (3.6e6, "1,000 h")]
)
def test_times_have_the_unit_that_suits_them(seconds, words):
    assert hours(seconds).replace("\N{NO-BREAK SPACE}", " ") == words


def test_spreads():
    assert [spread(each) for each in ([], [3, 3], [5, 3])] == ["–", "3", "3–5"]


def test_every_figure_is_described():
    assert list(about_figures()) == list(FIGURES)


def test_an_empty_store_gives_a_page_that_says_what_to_run(empty_page):
    text = empty_page.read_text()
    assert "There are no runs yet" in text
    for words in ("make bandits", "make reversal", "make rlvr", "common.runs import"):
        assert words in text
    for name in FIGURES:
        assert f'id="{name}"' in text
    assert text.count("Nothing is drawn") == len(FIGURES)
    assert "<img" not in text
    assert set(re.findall(r'data-verdict="([^"]*)"', text)) == {"not-run"}


def test_what_is_short_missing_or_unfinished_is_drawn_labelled_and_counted(page, store):
    found = gather(store)
    single = next(section for section in found.sections if section.name == "fig02")
    assert single.picture is not None
    assert [panel.ours for panel in single.panels] == ["30 updates, 5–6 seeds"]
    assert any("no runs of PG" in line for line in single.missing)
    assert {run.method: run.seeds for run in single.runs} == {"TPO": 6, "DG": 5, "GRPO": 6}
    mnist = next(section for section in found.sections if section.name == "fig04")
    assert mnist.picture is None
    states = {run.name.rpartition("/")[2].partition("-")[0]: run for run in found.holdings.open_runs}
    assert {name: run.state for name, run in states.items()} == {"tpo": "unfinished", "dg": "failed"}
    assert states["tpo"].step == 1234
    text = page.read_text()
    assert "2 not done" in text
    assert "loss is not finite at step 7 &lt;nan&gt;" in text
    assert "no runs of PG" in text


def test_the_page_needs_no_other_file_and_escapes_what_it_shows(page):
    text = page.read_text()
    assert len(text) < 10e6
    assert "<b>Mine</b>" not in text
    assert "&lt;b&gt;Mine&lt;/b&gt; &amp; co" in text
    assert {each for each in re.findall(r'(?:src|href)="([^"#][^"]*)"', text) if not each.startswith("data:")} == {
        "https://arxiv.org/abs/2604.06159"
    }
    assert "url(" not in text
    assert "@import" not in text


def test_the_same_store_gives_the_same_page_but_for_the_time(store):
    one, other = (render(dataclasses.replace(gather(store), made="now")) for _ in range(2))
    assert one == other


def test_an_objective_of_ones_own_stands_beside_the_built_in_ones(store):
    (contest,) = contests(store)
    assert contest.experiment == "bandits/multi_context"
    assert contest.settings == "steps=20"
    assert [(each.name, each.own, each.seeds) for each in contest.standings] == [
        ("<b>Mine</b> & co", True, 4),
        ("DG", False, 4),
        ("TPO", False, 4),
    ]
    finals = [float(each.final.split()[0]) for each in contest.standings]
    assert finals[2] < finals[0] < finals[1]


def test_disagreements_are_answered_by_the_store_or_not_run(tmp_path, store):
    nothing = disagreements(chosen_runs(RunStore(tmp_path / "nothing")))
    assert len(nothing) == 12
    assert not any(point.decided for point in nothing)
    full = RunStore(tmp_path / "full")
    for objective in ("tpo", "dg", "grpo", "pg"):
        settings = SingleContext(objective=objective)
        put(full, "single_context", settings, 3, bandit_metrics(3, 150, 0.05), torch.arange(150))
    points = {point.id: point for point in disagreements(chosen_runs(full))}
    assert [each.value is not None for each in points["beyond-one-percent"].findings] == [True] * 5
    assert points["beyond-one-percent"].findings[0].remark == "3 seeds"
    mixed = {point.id: point for point in disagreements(chosen_runs(store))}
    heads, grouping = mixed["heads-and-muon"].findings
    assert (heads.value, grouping.value) == ("2", "artefact")
    assert "40 of 2,000 episodes" in mixed["two-halves"].findings[0].remark


def test_evidence_names_panels_and_methods_that_figures_have(tmp_path):
    """A name that no figure has would be "not run" for ever."""
    import yaml

    import report.disagreements

    chosen = chosen_runs(RunStore(tmp_path / "nothing"))
    points = yaml.safe_load(Path(report.disagreements.__file__).with_name("disagreements.yaml").read_text())
    for point in points:
        assert set(point["figures"]) <= set(FIGURES)
        for each in point["evidence"]:
            panels = [panel for panel in chosen[each["figure"]] if each.get("place") in (None, panel.place)]
            assert any(each["method"] in panel.methods for panel in panels), f"{point['id']}: {each['words']}"


def test_costs_count_what_the_store_has_and_shared_runs_once(tmp_path):
    store = RunStore(tmp_path / "runs")
    before = cost.costs(store)
    put_single_context(store, "tpo", 100, 0.3, steps=150)
    after = cost.costs(store)
    single = {"before": before.estimates[0], "after": after.estimates[0]}
    assert {name: (each.figures, each.seeds, each.seeds_done) for name, each in single.items()} == {
        "before": (("fig02",), 400, 0),
        "after": (("fig02",), 400, 100),
    }
    assert single["after"].full.startswith("4")  # a second of CPU time for each run of 100 seeds, as in the record
    assert single["after"].left.startswith("3")
    assert after.total.runs < sum(each.runs for each in after.estimates)
    covered = {name for each in after.estimates for name in each.figures}
    assert covered == set(FIGURES) - {"candidate_logprob"}


def test_holdings_count_runs_seeds_and_states(store):
    found = holdings(store)
    by_name = {each.name: each for each in found.experiments}
    assert by_name["bandits/mnist"].states == "1 failed, 1 unfinished"
    assert by_name["bandits/single_context"].seeds == 17
    assert found.runs == sum(each.runs for each in found.experiments)
    assert found.finished == found.runs - 2


def test_a_damaged_run_and_a_folder_that_cannot_be_written_are_told_in_one_line(tmp_path, capsys):
    store = RunStore(tmp_path / "runs")
    directory = put_single_context(store, "tpo", 3, 0.3)
    (tmp_path / "file").write_text("")
    assert main(["--store", str(store.root), "--out", str(tmp_path / "file")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --out")
    (directory / "metrics-0-2.parquet").write_bytes(b"")
    assert main(["--store", str(store.root), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "metrics-0-2.parquet: damaged" in line
