"""Figures of the sequence track from synthetic stores and from real smoke runs."""

import numpy as np
import pytest
from figure_runs import falling, figures, put_sequence, rows

from common.launch.experiment import experiments_of
from common.launch.plan import device_of, plan_runs
from common.runs.execute import Work, execute
from common.runs.store import RunStore
from common.statistics import Size
from figures import fig05, fig06, fig06_sequence, fig07, fig08, fig10, fig11, fig12, fig13, fig14, fig15, fig16, fig17
from figures.selection import footer
from figures.sequences import DENSE, MECHANISM, Panel, selected
from figures.variants import VARIANTS, title

MODULES = {
    module.__name__.removeprefix("figures."): module
    for module in (
        *(fig05, fig06, fig06_sequence, fig07, fig08, fig10, fig11),
        *(fig12, fig13, fig14, fig15, fig16, fig17),
    )
}
TOKENS = {"reward": "bag_of_tokens"}
SMALL = {"length": 5, "batch": 100, "candidates": 8}
TERMINAL = {"tpo": 40, "grpo": 150, "grpo_no_kl": 180, "ppo": 90, "dg": 120}
HARD = {"tpo_no_anchor": 190, "group_pg": 195}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A store with something for every figure, of small sizes, but H = 7 at the paper's."""
    store = RunStore(tmp_path_factory.mktemp("sequences") / "runs")
    for name, half_way in {**TERMINAL, **HARD}.items():
        put_sequence(store, name, falling(20, 2000, half_way=5 * half_way, floor=half_way / 1000), length=7)
    for name in ("ppo", "dg"):
        error = falling(20, 2000, half_way=4 * TERMINAL[name], floor=0.2)
        put_sequence(store, name, error, length=7, matching="interaction")
    for name, half_way in (("tpo", 40), ("grpo", 90), ("dg", 120), ("ppo", 150)):
        error = falling(6, 250, half_way=half_way, start=0.5)
        for vocabulary in (2, 4):
            put_sequence(store, name, error, vocabulary=vocabulary, level="token", **TOKENS)
        put_sequence(store, name, error, target="copy", level="token", **TOKENS)
        put_sequence(store, name, error, target="copy", **TOKENS)
        put_sequence(store, name, error, target="copy", matching="interaction", **TOKENS)
    for eta, half_way in ((0.25, 30), (1.0, 40), (4.0, 110)):
        error = falling(6, 250, half_way=half_way, start=0.5)
        for level in ("token", "sequence"):
            put_sequence(store, "tpo", error, options={"eta": eta}, level=level, **TOKENS)
    for name, half_way in {**TERMINAL, "grpo_zv_masked": 170}.items():
        put_sequence(store, name, falling(4, 400, half_way=half_way, floor=half_way / 1000), **SMALL)
    for name in ("tpo", "grpo"):
        for epochs in (1, 16):
            error = falling(4, 400, half_way=2 * TERMINAL[name] / (1 + epochs / 8), floor=TERMINAL[name] / 1000)
            put_sequence(store, name, error, epochs=epochs, **SMALL)
        for candidates in (4, 16):
            error = falling(4, 400, half_way=TERMINAL[name] * 8 / candidates, floor=TERMINAL[name] / 1000)
            put_sequence(store, name, error, **{**SMALL, "candidates": candidates})
    put_sequence(store, "dg", falling(4, 400, half_way=120, floor=0.4), length=5, epochs=4)
    put_sequence(store, "dg", falling(6, 250, half_way=120, floor=0.01, start=0.5), target="copy", epochs=4, **TOKENS)
    return store


def judged(module, store):
    return {row.claim: row for row in module.compare(store)}


def one(found, *words):
    """Return what stands under the one key that holds all the words."""
    keys = [key for key in found if all(word in key for word in words)]
    keys = [key for key in keys if key.endswith(words[-1])] or keys
    assert len(keys) == 1, (words, keys)
    return found[keys[0]]


def test_every_figure_draws_and_compares(full, tmp_path, environment):
    result = figures(*MODULES, "--store", full.root, "--out", tmp_path / "out", environment=environment)
    assert result.returncode == 0, result.stderr
    assert "nothing drawn" not in result.stderr
    assert "fig05: no runs at V = 8, V = 16; python -m sequence_tasks experiment=dense_vocabulary" in result.stderr
    names = [f"{name}.{kind}" for name in MODULES for kind in ("png", "pdf")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert result.stdout.splitlines()[-len(names) :] == [str(tmp_path / "out" / name) for name in names]


def test_an_empty_store_names_the_commands(tmp_path, environment):
    arguments = ("--store", tmp_path / "nothing", "--out", tmp_path / "out")
    result = figures(*MODULES, *arguments, environment=environment)
    assert result.returncode == 0
    assert not (tmp_path / "out").exists()
    lines = result.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == list(MODULES)
    for line in lines:
        assert "nothing drawn (python -m sequence_tasks" in line
    for experiment in ("terminal", "dense_vocabulary", "gradient_epochs"):
        assert f"python -m sequence_tasks experiment={experiment} preset=paper" in result.stdout
    found = rows(*MODULES, *arguments[:2])
    assert len(found) > 300
    assert {(row["verdict"], row["n"]) for row in found} == {("not run", 0)}


def test_numbers_and_orders_at_the_papers_size(full):
    found = judged(fig07, full)
    lowest = one(found, "TPO lowest", "at H = 7 (interaction-matched)")
    assert (lowest.verdict, lowest.n, lowest.paper) == ("reproduced", 20, "TPO lowest")
    ours = one(found, "DG: exact-match error", "last episode at H = 7 (interaction-matched)")
    assert (ours.paper, ours.verdict) == (47.7, "differs")
    assert ours.command.endswith("experiment=terminal preset=paper matching=interaction task.length=7")
    assert one(found, "DG: exact-match error", "last episode at H = 9: > 95").verdict == "not run"
    assert one(found, "TPO first", "H = 5 (not in the paper)").verdict == "reduced"
    assert not any(row.verdict == "reproduced" for row in fig12.compare(full))


def test_swapped_curves_flip_the_verdict(tmp_path):
    store = RunStore(tmp_path / "runs")
    names = ("tpo", "grpo", "dg", "ppo")
    for name, half_way in zip(names, (120, 90, 40, 150), strict=True):
        put_sequence(store, name, falling(20, 1000, half_way=half_way, start=0.5), level="token", **TOKENS)
    assert one(judged(fig05, store), "TPO first", "V = 2").verdict == "differs"
    for name, half_way in zip(names, (40, 90, 120, 150), strict=True):
        put_sequence(store, name, falling(20, 1000, half_way=half_way, start=0.5), level="token", **TOKENS)
    assert one(judged(fig05, store), "TPO first", "V = 2").verdict == "reproduced"


def test_reduced_sizes_are_named(full):
    (selection,) = fig14.chosen(full)
    assert selection.size(["tpo_4_epochs"]) is Size.OTHER_SETTINGS
    assert "REDUCED: 400 of 2,000 episodes, B = 100 (paper 256), K = 8 (paper 32), H = 5 (paper 8)" in footer(
        [selection]
    )
    words = footer(fig07.chosen(full))
    assert "REDUCED: H = 5 (not in the paper): 400 of 2,000 episodes, H = 5 is not in the paper" in words
    assert "20 (paper: 20)" in words


def test_a_published_number_is_not_compared_with_another_task(full):
    found = judged(fig13, full)
    assert one(found, "GRPO: exact-match error", "last episode").verdict == "not run"
    assert one(found, "TPO lowest").verdict == "reduced"


def test_one_method_is_missing_and_another_has_fewer_seeds(tmp_path):
    store = RunStore(tmp_path / "runs")
    for name, seeds in (("tpo", 20), ("grpo", 5), ("ppo", 20), ("dg", 20)):
        error = falling(seeds, 2000, half_way=5 * TERMINAL[name], floor=TERMINAL[name] / 1000)
        put_sequence(store, name, error, length=7)
    found = judged(fig07, store)
    lowest = one(found, "TPO lowest", "H = 7")
    assert (lowest.verdict, lowest.high, lowest.n) == ("inconclusive", None, 5), "without GRPO (no KL) it cannot hold"
    assert one(found, "GRPO (no KL): exact-match error", "last episode at H = 7").verdict == "not run"
    assert one(found, "GRPO: exact-match error", "last episode at H = 7").n == 5
    words = footer(fig07.chosen(store))
    assert "seeds: TPO 20, GRPO 5, PPO 20, DG 20 (paper: 20)" in words
    assert "no runs: GRPO (no KL)" in words
    worse = falling(20, 2000, half_way=200, floor=0.5)
    put_sequence(store, "tpo", worse, length=7)
    assert one(judged(fig07, store), "TPO lowest", "H = 7").verdict == "differs", "but it can fail"


def test_a_seed_that_ended_early(tmp_path):
    store = RunStore(tmp_path / "runs")
    for name, half_way in (("tpo", 40), ("grpo", 90), ("dg", 120), ("ppo", 150)):
        error = falling(4, 250, half_way=half_way, start=0.5)
        if name == "dg":
            error[2, 180:] = np.nan
        put_sequence(store, name, error, level="token", **TOKENS)
    fig05.draw(store)
    assert one(judged(fig05, store), "DG: steps", "V = 2").n == 3


def test_sizes_are_not_mixed_in_a_panel(tmp_path):
    store = RunStore(tmp_path / "runs")
    panel = Panel("terminal", ("tpo", "grpo", "dg"), {"length": 7}, told_by=("length",))
    short, wide = {"length": 7}, {"length": 7, "batch": 200}
    put_sequence(store, "tpo", falling(3, 400, half_way=40), **short)
    put_sequence(store, "grpo", falling(3, 400, half_way=40), **short)
    put_sequence(store, "dg", falling(3, 500, half_way=40), **short)
    selection = selected(store, panel)
    assert (sorted(selection.runs), selection.steps) == (["grpo", "tpo"], 400)
    put_sequence(store, "dg", falling(3, 400, half_way=40), **short)
    put_sequence(store, "dg", falling(3, 400, half_way=40), **wide)
    selection = selected(store, panel)
    assert {run.settings["batch"] for run in selection.runs.values()} == {100}
    assert len(selection.runs) == 3
    put_sequence(store, "tpo", falling(2, 2000, half_way=40), **short)
    selection = selected(store, panel)
    assert (list(selection.runs), selection.reductions) == (["tpo"], ()), "the paper's size wins"


def test_other_settings_do_not_pass_for_the_papers(tmp_path):
    store = RunStore(tmp_path / "runs")
    error = falling(3, 2000, half_way=40)
    for settings in ({"heads": 4}, {"grouping": "standard"}, {"experiment_seed": 1}, {"learning_rate": 0.002}):
        put_sequence(store, "tpo", error, length=7, **settings)
    put_sequence(store, "tpo", error, length=7, options={"eta": 0.5})
    put_sequence(store, "grpo", falling(3, 3000, half_way=40), length=7)
    assert not any(selection.runs for selection in fig07.chosen(store))


def test_interaction_matched_runs_have_panels_of_their_own(full):
    shown = {each.place: each for each in fig07.chosen(full) if each.runs}
    prompt, interaction = shown["H = 7"], shown["H = 7 (interaction-matched)"]
    assert "H = 5 (interaction-matched, not in the paper)" not in shown
    assert len(shown) == 3
    assert prompt.runs["tpo"] == interaction.runs["tpo"]
    settings = interaction.runs["dg"].settings
    assert (settings["batch"], round(settings["learning_rate"], 5)) == (800, 0.00283)
    assert prompt.runs["dg"].settings["batch"] == 100
    small = {each.place: sorted(each.runs) for each in fig06_sequence.chosen(full) if each.runs}
    assert small["copy, bag of tokens (interaction-matched)"] == ["dg", "grpo", "ppo", "tpo"]
    assert "reverse copy, bag of tokens (interaction-matched)" not in small


def test_interaction_matched_runs_of_a_smaller_group_are_found(tmp_path):
    store = RunStore(tmp_path / "runs")
    small = {"length": 7, "batch": 8, "candidates": 4}
    for name in ("tpo", "ppo"):
        put_sequence(store, name, falling(2, 30, half_way=20), matching="interaction", **small)
    shown = {each.place: each for each in fig07.chosen(store) if each.runs}
    selection = shown["H = 7 (interaction-matched)"]
    assert sorted(selection.runs) == ["ppo", "tpo"]
    assert selection.differences == ("B = 8 (paper 100)", "K = 4 (paper 8)")


def test_very_short_runs_get_no_panel_beside_long_ones(tmp_path):
    store = RunStore(tmp_path / "runs")
    put_sequence(store, "tpo", falling(2, 5, half_way=3), length=3, batch=8)
    assert [each.place for each in fig07.chosen(store) if each.runs] == ["H = 3 (not in the paper)"]
    put_sequence(store, "tpo", falling(2, 400, half_way=40), length=5)
    assert [each.place for each in fig07.chosen(store) if each.runs] == ["H = 5 (not in the paper)"]


def test_both_statements_of_the_ablation_are_judged(tmp_path):
    store = RunStore(tmp_path / "runs")
    for name, end in (
        ("tpo", 0.07),
        ("grpo", 0.5),
        ("grpo_no_kl", 0.997),
        ("tpo_no_anchor", 0.997),
        ("group_pg", 0.997),
    ):
        put_sequence(store, name, falling(20, 2000, half_way=100, floor=end, noise=0.001))
    found = judged(fig08, store)
    assert one(found, "every ablation is above 99 %", "GRPO too").verdict == "differs"
    assert one(found, "GRPO: exact-match error", "last episode at H = 10").verdict == "reproduced"
    assert one(found, "every ablation is above 99 %", "Group PG too").verdict == "reproduced"


def test_not_reached_says_nothing_of_short_runs(tmp_path):
    store = RunStore(tmp_path / "runs")
    for episodes, verdict in ((300, "inconclusive"), (1000, "reproduced")):
        for name in ("tpo", "grpo", "dg", "ppo"):
            error = falling(10, episodes, half_way=100, floor=0.0 if name in ("tpo", "dg") else 0.2, start=0.9)
            put_sequence(store, name, error, level="token", target="copy", reward="sequential")
        found = judged(fig06, store)
        assert one(found, "PPO: steps", " error, copy, sequential: not reached").verdict == verdict


def test_the_text_on_the_bag_of_tokens_is_judged_beside_its_table(tmp_path):
    store = RunStore(tmp_path / "runs")
    for name, half_way in (("tpo", 40), ("grpo", 60), ("dg", 120), ("ppo", 90)):
        error = falling(10, 1000, half_way=half_way, start=0.5)
        put_sequence(store, name, error, level="token", target="flip", **TOKENS)
    found = judged(fig06, store)
    assert one(found, "2–6 times", ", flip, bag").verdict == "differs", "1.5 times"
    assert one(found, "PPO does not reach 1 %", ", flip, bag").verdict == "differs"
    assert one(found, "all methods but PPO reach 1 %", ", flip, bag").verdict == "reproduced"


def test_a_mechanism_run_without_winners_or_losers(tmp_path):
    store = RunStore(tmp_path / "runs")
    for name in ("tpo", "grpo"):
        error = falling(3, 60, half_way=30)
        weight = error.clone()
        weight[:, 50:] = np.nan
        weight[1, 40:] = np.nan
        put_sequence(store, name, error, change={"winner_weight": weight, "loser_weight": weight / 9}, **SMALL)
    fig10.draw(store)
    assert one(judged(fig10, store), "GRPO", "losers weigh less").verdict == "reduced"


def test_the_number_of_worse_variants(tmp_path):
    store = RunStore(tmp_path / "runs")
    for reward in ("bag_of_tokens", "sequential"):
        for index, target in enumerate(("copy", "flip", "reverse_copy", "reverse_flip")):
            better = (reward, index) == ("sequential", 2)
            for epochs, end in ((1, 0.01), (4, 0.001 if better else 0.05)):
                error = falling(10, 1000, half_way=100, floor=end, start=0.9)
                put_sequence(store, "dg", error, epochs=epochs, target=target, reward=reward)
    found = judged(fig17, store)
    count = one(found, "four epochs are worse than one in 7 or more of 8")
    assert (count.verdict, count.ours) == ("reproduced", "7 of 8")
    assert one(found, "four epochs are worse", "reverse copy, sequential").verdict == "differs"


def test_the_published_run_is_drawn_where_its_setting_is(tmp_path):
    store = RunStore(tmp_path / "runs")
    put_sequence(store, "tpo", falling(2, 400, half_way=40), length=7)
    assert "published" not in legend(fig07.draw(store))
    put_sequence(store, "tpo", falling(2, 400, half_way=40), length=10)
    figure = fig07.draw(store)
    assert "published run, H = 10" in legend(figure)
    assert [len(axis.lines) for axis in figure.axes] == [1, 4]


def legend(figure):
    return " ".join(text.get_text() for text in figure.legends[0].get_texts())


def test_labels_have_titles_and_looks():
    from figures.style import BESIDE_OTHERS, METHODS

    assert title("tpo_k32") == "TPO (K = 32)"
    assert title("tpo_1_epoch") == "TPO (1 epoch)"
    assert title("tpo_token") == "TPO (token level)"
    for module in MODULES.values():
        for selection in module.chosen(RunStore("nowhere")):
            assert all(method in METHODS for method in selection.methods)
    assert set(BESIDE_OTHERS) <= set(VARIANTS)


@pytest.mark.parametrize(
    ("panel", "narrower"),
    [
        (Panel("terminal", fig07._METHODS, {"length": 8}, overrides="task.length=8"), "matching=prompt"),
        (
            Panel("terminal", fig07._METHODS, {"length": 8, "matching": "interaction"}, overrides="task.length=8"),
            "matching=interaction",
        ),
        (fig05._PANELS[1], ""),
        (fig06._ROWS[1][1], ""),
        (fig08._PANEL, "task.length=10"),
        (fig10._PANEL, ""),
        (fig12._PANEL, ""),
        (fig13._PANEL, ""),
        (fig15._PANEL, ""),
        (fig16._PANELS[0], ""),
        (fig17._TERMINAL, ""),
        (fig17._DENSE[6], ""),
    ],
    ids=lambda value: value.experiment if isinstance(value, Panel) else value,
)
def test_the_command_makes_the_papers_runs(panel, narrower):
    _, _, track, *arguments = [*panel.command.split(), *narrower.split()]
    planned = {run.spec.key: run.seeds for run in plan_runs(track, arguments)}
    for method in panel.methods:
        assert planned.get(panel.run_key(method, panel.paper_size)) == panel.seeds, method


def test_every_figure_draws_from_real_smoke_runs(tmp_path):
    store = RunStore(tmp_path / "runs")
    tracks = experiments_of("sequence_tasks")
    planned = {}
    for experiment, *narrower in (
        ("terminal", "matching=prompt,interaction"),
        ("dense_vocabulary", "task.vocabulary=2"),
        ("dense_variants", "task.target=copy", "task.reward=sequential"),
        ("anchor_ablation",),
        ("gradient_diagnostics",),
        ("zero_variance_masking",),
        ("group_size",),
        ("gradient_epochs",),
        ("temperature", "level=token"),
        ("dg_epochs",),
        ("dg_epochs_dense", "task.reward=sequential"),
    ):
        arguments = [f"experiment={experiment}", "preset=smoke", "episodes=3", *narrower]
        planned |= {run.spec.key: run for run in plan_runs("sequence_tasks", arguments)}
    cpu = device_of("cpu")
    for run in planned.values():
        experiment = tracks[run.config["experiment"]]

        def trainer(seeds, run=run, experiment=experiment):
            return experiment.trainer(run.spec.settings, seeds, cpu, run.config)

        execute(Work(run.spec, 2, trainer, cpu, "smoke"), store)
    for module in MODULES.values():
        module.draw(store)
    found = [row for module in MODULES.values() for row in module.compare(store)]
    assert {row.verdict for row in found} <= {"reduced", "inconclusive", "not run"}
    assert any(row.preset == "smoke" for row in found)


def test_defaults_of_the_tables_are_the_configured_ones():
    """The paper's sizes stand in the configuration too; a panel must not differ from it."""
    (first, *_) = plan_runs("sequence_tasks", ["experiment=gradient_diagnostics", "preset=paper"])
    settings = first.spec.settings
    assert {name: getattr(settings, name) for name in MECHANISM} == MECHANISM
    (first, *_) = plan_runs("sequence_tasks", ["experiment=dense_vocabulary", "preset=paper", "task.vocabulary=2"])
    assert {name: getattr(first.spec.settings, name) for name in DENSE} == DENSE
