"""Every rule comes out each way; the claim file is whole; real claims follow the store."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from figure_runs import ROOT, falling, put, put_sequence

from bandits.single_context import SingleContext
from common.errors import UserError
from common.runs.archive import import_runs
from common.runs.files import sha256, write_bytes
from common.runs.store import RunStore, block_bytes, lock, parquet_bytes, write_record
from common.runs.trainer import Records
from common.statistics import FINAL, difference, interval
from figures.catalogue import PAPER_FIGURES
from figures.claims import all_rows, claim_file, parsed
from figures.judged import judged_claims
from figures.published import Number, PublishedFigure
from figures.quantities import ABSENT, Derived, Quantity
from figures.rules import Below, Found, Numbers, Subject, Within
from figures.selection import select

METHODS = ("tpo", "pg", "dg")
FULL = 20
ERROR = Quantity("final error (%)", "error", FINAL, 100)


def stored(root, finals, seeds=FULL, spread=0.01, steps=150):
    """Write single-context runs that end at these errors, each method's seeds spread in an order of their own."""
    store = RunStore(root)
    for rng, (name, end) in enumerate(finals.items()):
        z = np.random.default_rng(rng).permutation(np.linspace(-1, 1, seeds))
        error = torch.from_numpy(end + spread * z)[:, None].expand(seeds, steps)
        put(
            store,
            "single_context",
            SingleContext(objective=name, steps=steps),
            seeds,
            {"error": error},
            torch.arange(steps),
        )
    return store


def lower_than_pg(selection, methods):
    (method,) = methods
    return interval(difference(ERROR.of(selection, method), ERROR.of(selection, "pg"))), "found"


def subject(store, **numbers):
    selection = select(store, "bandits", "single_context", METHODS, paper_steps=150, paper_seeds=FULL)
    tables = {"paper": {}, "artefact": {}, "above": {}, "below": {}, **numbers}
    quantities = {"error": ERROR, "absent": Derived("what is not there", lambda selection, method: ABSENT)}
    return Subject(
        {"all": selection}, quantities, PublishedFigure(150, FULL, **tables), {"lower_than_pg": lower_than_pg}
    )


def published(value):
    return {"end": {"tpo": Number(value, "%", FULL, 0.05, "Table 9")}}


ONE_NUMBER = Numbers(numbers="end", quantity=("error",))
ORDER = Below(quantity="error", lower=("tpo",), upper=("pg",), said="TPO lower", source="Fig. 9")
FLOOR = Within(quantity="error", methods=("tpo",), low=40, said="> 40", source="Fig. 9")
CEILING = Within(quantity="error", methods=("tpo",), high=40, said="< 40", source="Fig. 9")
BETWEEN = Within(quantity="error", methods=("tpo",), low=20, high=40, said="20–40", source="Fig. 9")
FOUND = Found(finding="lower_than_pg", methods=("tpo",), said="lower", source="Fig. 9", claim="{methods} lower")
PUBLISHED = {"paper": published(30)}
ABOVE = {"above": published(40)}
BELOW = {"below": published(40)}


@pytest.mark.parametrize(
    ("rule", "numbers", "right", "wrong"),
    [
        (ONE_NUMBER, PUBLISHED, 0.3, 0.6),
        (ONE_NUMBER, ABOVE, 0.6, 0.3),
        (ONE_NUMBER, BELOW, 0.3, 0.6),
        (ORDER, {}, 0.3, 0.6),
        (FLOOR, {}, 0.6, 0.3),
        (CEILING, {}, 0.3, 0.6),
        (BETWEEN, {}, 0.3, 0.1),
        (BETWEEN, {}, 0.3, 0.6),
        (FOUND, {}, 0.3, 0.6),
    ],
    ids=["number", "above", "below", "order", "floor", "ceiling", "between-low", "between-high", "finding"],
)
def test_each_rule_comes_out_each_way(tmp_path, rule, numbers, right, wrong):
    def verdict(name, end, **how):
        finals = {"pg": 0.4} if end is None else {"tpo": end, "pg": 0.4}
        (row,) = all_rows("a claim", [rule], subject(stored(tmp_path / name, finals, **how), **numbers))
        return row.verdict

    assert verdict("right", right) == "reproduced"
    assert verdict("wrong", wrong) == "differs"
    assert verdict("noisy", right, spread=3) == "inconclusive"
    assert verdict("few", right, seeds=8) == "reduced"
    assert verdict("few wrong", wrong, seeds=8) == "differs"
    assert verdict("none", None) == "not run"


@pytest.mark.parametrize(("rule", "right", "wrong"), [(ORDER, 0.3, 0.6), (CEILING, 0.3, 0.6), (BETWEEN, 0.3, 0.6)])
def test_shorter_runs_never_have_the_last_word(tmp_path, rule, right, wrong):
    stores = [stored(tmp_path / str(end), {"tpo": end, "pg": 0.4}, steps=60) for end in (right, wrong)]
    verdicts = [row.verdict for store in stores for row in all_rows("a claim", [rule], subject(store))]
    assert verdicts == ["reduced", "inconclusive"]


def test_a_bound_from_below_says_nothing_in_shorter_runs(tmp_path):
    (row,) = all_rows("a claim", [FLOOR], subject(stored(tmp_path, {"tpo": 0.6}, steps=60)))
    assert (row.verdict, row.high) == ("inconclusive", None)


def test_a_method_without_runs_leaves_an_order_that_can_only_fail(tmp_path):
    rule = replace(ORDER, upper=())
    for name, end, verdict in (("lower", 0.3, "inconclusive"), ("higher", 0.6, "differs")):
        (row,) = all_rows("a claim", [rule], subject(stored(tmp_path / name, {"tpo": end, "pg": 0.4})))
        assert (row.verdict, row.high is None) == (verdict, True)
    everyone = subject(stored(tmp_path / "all", {"tpo": 0.3, "pg": 0.4, "dg": 0.5}))
    assert [row.verdict for row in all_rows("a claim", [rule], everyone)] == ["reproduced"]


def test_what_the_runs_do_not_show_is_inconclusive(tmp_path):
    rule = replace(ONE_NUMBER, quantity=("absent",))
    (row,) = all_rows("a claim", [rule], subject(stored(tmp_path, {"tpo": 0.3}), **PUBLISHED))
    assert (row.verdict, row.ours, row.n) == ("inconclusive", "not in these runs", 0)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (replace(ORDER, panels=("h7",)), "panel: 'h7' is unknown; there are all"),
        (replace(ORDER, quantity="speed"), "quantity: 'speed' is unknown; there are error, absent"),
        (replace(ORDER, upper=("grpo",)), "method: 'grpo' is not in the panel; there are tpo, pg, dg"),
        (replace(FLOOR, methods=("ppo",)), "method: 'ppo' is not in the panel; there are tpo, pg, dg"),
        (replace(FOUND, finding="higher"), "finding: 'higher' is unknown; there are lower_than_pg"),
        (
            replace(ONE_NUMBER, numbers="begin"),
            "numbers: 'begin' is unknown in paper_numbers.yaml (paper, above",
        ),
        (replace(ONE_NUMBER, numbers="end_{panel}"), "numbers: 'end_all' is unknown in paper_numbers.yaml"),
        (replace(ONE_NUMBER, methods=("dg",)), "numbers: 'end' has none of 'dg'"),
    ],
)
def test_a_name_that_the_figure_does_not_have_is_one_line(tmp_path, rule, words):
    with pytest.raises(UserError) as error:
        all_rows("fig99_first", [rule], subject(RunStore(tmp_path / "nothing"), **PUBLISHED))
    assert str(error.value).startswith(f"figures/claims.yaml: fig99_first: {words}")
    assert "\n" not in str(error.value)


def test_the_documented_claim_is_one_of_the_file():
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "claims.md").read_text(), flags=re.S)
    (claim,) = parsed(example).claims
    assert claim in claim_file().claims


PART = {"rule": "below", "quantity": "steps", "lower": "tpo", "said": "TPO first"}
CLAIM = {"id": "first", "claim": "TPO is first.", "source": "Fig. 9", "figure": "fig05", "parts": [PART]}


def test_a_part_has_the_source_of_its_claim_and_one_name_may_stand_alone():
    text = yaml.safe_dump({"claims": [CLAIM], "beside": {}})
    (rule,) = parsed(text).claims[0].parts
    assert (rule.source, rule.lower, rule.panels) == ("Fig. 9", ("tpo",), ("*",))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ([CLAIM, CLAIM], "first: id: there are two claims of this name"),
        ([{**CLAIM, "sauce": "Fig. 9"}], "first: sauce: unknown key; there are claim, figure, id, parts, source"),
        ([{key: value for key, value in CLAIM.items() if key != "source"}], "first: source: missing"),
        ([{**CLAIM, "source": ""}], "first: source: '' is not a text"),
        ([{**CLAIM, "parts": []}], "first: parts: found none"),
        (
            [{**CLAIM, "parts": [{**PART, "rule": "lowest"}]}],
            "first: rule: 'lowest' is unknown; there are numbers",
        ),
        (
            [{**CLAIM, "parts": [{**PART, "leader": "tpo"}]}],
            "first: leader: unknown key; there are claim, lower",
        ),
        ([{**CLAIM, "parts": [{"rule": "below", "quantity": "steps", "said": "TPO"}]}], "first: lower: missing"),
        ([{**CLAIM, "parts": [{**PART, "quantity": 3}]}], "first: quantity: 3 is not a text"),
        (
            [{**CLAIM, "parts": [{**PART, "claim": "{place}"}]}],
            "first: claim: {place} is unknown; there are {qu",
        ),
        ([{**CLAIM, "parts": [{**PART, "claim": "{"}]}], "first: claim: '{': "),
        (
            [{**CLAIM, "parts": [{"rule": "within", "quantity": "steps", "methods": "tpo", "said": "> 1"}]}],
            "first: low, high: found neither; give one or both",
        ),
        (
            [{**CLAIM, "parts": [{"rule": "within", "quantity": "s", "methods": "tpo", "said": "> 1", "low": "1 %"}]}],
            "first: low: '1 %' is not a number",
        ),
        (
            [{**CLAIM, "parts": [{"rule": "numbers", "numbers": "end", "quantity": "s", "table": "code"}]}],
            "first: table: 'code' is unknown; there are paper, artefact",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_line(claims, words):
    with pytest.raises(UserError) as error:
        parsed(yaml.safe_dump({"claims": claims, "beside": {}}))
    assert str(error.value).startswith(f"figures/claims.yaml: {words}")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_yaml_is_one_line():
    with pytest.raises(UserError, match="file: not YAML") as error:
        parsed("claims: [")
    assert "\n" not in str(error.value)


def test_every_figure_has_claims_and_every_name_is_known(tmp_path):
    """On an empty store all names are looked up, and nothing is judged."""
    found = judged_claims(RunStore(tmp_path / "nothing"))
    assert [claim.id for claim in found] == [claim.id for claim in claim_file().claims]
    assert {claim.figure for claim in found} == set(PAPER_FIGURES)
    assert {claim.verdict for claim in found} == {"not run"}
    assert all(claim.source and claim.parts for claim in found)
    assert set(claim_file().beside) <= set(PAPER_FIGURES)
    assert not any("artefact" in part.source for claim in found for part in claim.parts)


def test_every_published_number_is_in_a_claim(tmp_path):
    subjects = {name: figure.subject(RunStore(tmp_path / "nothing")) for name, figure in PAPER_FIGURES.items()}
    used = {
        (claim.figure, kind, rule.numbers.format(panel=panel), method)
        for claim in claim_file().claims
        for rule in claim.parts
        if isinstance(rule, Numbers)
        for panel in rule.on(subjects[claim.figure])
        for kind, method, _ in rule.published(subjects[claim.figure], panel)
    }
    everything = {
        (name, kind, key, method)
        for name, figure in yaml.safe_load((ROOT / "figures" / "paper_numbers.yaml").read_text()).items()
        for kind in ("paper", "above", "below")
        for key, entry in figure.get(kind, {}).items()
        for method in entry.get("values", entry)
    }
    assert len(everything) > 150
    assert used == everything


def test_a_claim_states_the_numbers_that_it_is_judged_by(tmp_path):
    subjects = {name: figure.subject(RunStore(tmp_path / "nothing")) for name, figure in PAPER_FIGURES.items()}
    for claim in claim_file().claims:
        for rule in claim.parts:
            if isinstance(rule, Numbers):
                for panel in rule.on(subjects[claim.figure]):
                    for _, _, number in rule.published(subjects[claim.figure], panel):
                        said = number.said or f"{number.value:,.10g}".replace("-", "−")
                        assert said in claim.claim, (claim.id, said)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """The store of the MNIST runs at the paper's size that the repository holds."""
    store = RunStore(tmp_path_factory.mktemp("mnist") / "runs")
    import_runs(ROOT / "docs" / "results" / "mnist_paper_runs.zip", store)
    return store


@pytest.fixture
def copy(mnist, tmp_path):
    shutil.copytree(mnist.root, tmp_path / "copy")
    return RunStore(tmp_path / "copy")


def judged(store):
    return {claim.id: claim for claim in judged_claims(store)}


def one(store, objective):
    (run,) = [run for run in store.runs("bandits", "mnist") if run.objective == objective]
    return run


def rewrite(run, contents):
    """Give a run's blocks other contents."""
    with lock(run.directory):
        for block, content in zip(run.blocks, contents, strict=True):
            write_bytes(run.directory / block.file, content)
        blocks = [replace(block, sha256=sha256(data)) for block, data in zip(run.blocks, contents, strict=True)]
        write_record(run.directory, blocks)


def swap(store, first, second):
    runs = [one(store, name) for name in (first, second)]
    contents = [[block_bytes(run.directory, block) for block in run.blocks] for run in runs]
    for run, content in zip(runs, reversed(contents), strict=True):
        rewrite(run, content)


def test_swapped_curves_flip_the_verdict(mnist, copy):
    ordering = "TPO is the first bandit method: updates to 5 % test error"

    def verdicts(store):
        claim = judged(store)["fig04_speed"]
        return claim.verdict, {part.claim: part.verdict for part in claim.parts}[ordering]

    assert verdicts(mnist) == ("reproduced", "reproduced")
    swap(copy, "tpo", "pg")
    assert verdicts(copy) == ("differs", "differs")
    swap(copy, "tpo", "pg")
    assert verdicts(copy) == ("reproduced", "reproduced")


def test_one_seed_short_is_reduced(copy):
    run = one(copy, "tpo")
    frame = run.metrics(seeds=FULL - 1)
    steps = torch.from_numpy(frame["step"].unique())
    names = [name for name in frame if name not in ("seed", "step")]
    metrics = {name: torch.tensor(frame[name].to_numpy().reshape(FULL - 1, len(steps))) for name in names}
    content = parquet_bytes(Records(steps, metrics), range(FULL - 1))
    write_bytes(run.directory / run.blocks[0].file, content)
    write_record(run.directory, [replace(run.blocks[0], sha256=sha256(content), last_seed=FULL - 2)])
    claim = judged(copy)["fig04_speed"]
    assert claim.verdict == "reduced"
    assert [(part.n, part.verdict) for part in claim.parts] == [(19, "reduced"), (20, "reproduced"), (19, "reduced")]


def test_one_run_unfinished_leaves_its_parts_not_run(copy):
    (one(copy, "pg").directory / "record.json").unlink()
    found = judged(copy)
    assert found["fig04_final"].verdict == "inconclusive"
    parts = {part.claim.split(":")[0]: part.verdict for part in found["fig04_final"].parts}
    assert parts == {**dict.fromkeys(("TPO", "DG", "GRPO", "Group PG"), "reproduced"), "PG": "not run"}
    assert found["fig04_speed"].parts[-1].verdict == "inconclusive", "TPO is first of those that there are"
    assert found["fig04_speed"].parts[-1].high is None


def test_missing_experiments_are_counted_as_not_run(mnist):
    found = judged(mnist)
    assert {claim.verdict for claim in found.values() if claim.figure != "fig04"} == {"not run"}
    for part in found["fig02_fastest"].parts:
        assert (part.verdict, part.n, part.command) == (
            *("not run", 0),
            "python -m bandits experiment=single_context preset=paper",
        )


def test_panels_beside_the_paper_stand_in_for_its_own(tmp_path):
    """H = 5 is judged until there are runs at one of the paper's lengths, which then count alone."""
    store = RunStore(tmp_path / "runs")
    for name, half_way in {"tpo": 40, "ppo": 90}.items():
        put_sequence(store, name, falling(4, 400, half_way=half_way), length=5)
    claim = judged(store)["fig07_first"]
    assert claim.verdict == "inconclusive", "the paper's lengths were not run"
    assert [part.verdict for part in claim.parts if "H = 5" in part.claim] == ["reduced"]
    put_sequence(store, "tpo", falling(4, 2000, half_way=200), length=7)
    claim = judged(store)["fig07_first"]
    assert not any("H = 5" in part.claim for part in claim.parts)
    assert any("H = 5" in row.claim for row in PAPER_FIGURES["fig07"].compare(store))
