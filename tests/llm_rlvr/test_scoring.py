"""Rewards of answers by hand, and of any text at all: in [0, 1] or unscorable, in time, in any thread."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import reasoning_gym
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_rlvr.scoring import LONGEST_ANSWER, UNSCORABLE, Score, gsm8k_score, guarded, gym_score

TASKS = ("chain_sum", "graph_color", "knights_knaves")
ENTRIES = {name: reasoning_gym.create_dataset(name, seed=3, size=1)[0] for name in TASKS}
SUM = {"answer": "42", "metadata": {}}
DIGIT = {"answer": "4", "metadata": {}}
TRIANGLE = {
    "answer": None,
    "metadata": {
        "puzzle": {"vertices": [0, 1, 2], "edges": [(0, 1), (1, 2)], "num_colors": 2, "color_options": [1, 2]},
    },
}
PATH = '{"0": 1, "1": 2, "2": 1}'
ISLAND = {"answer": "Emma is a knight, and Liam is a knave.", "metadata": {}}


def tags(answer: str) -> str:
    return f"I think.\n<answer>{answer}</answer>"


def in_worker(function: Callable, *arguments: Any, **options: Any):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments, **options).result()


THREADS = pytest.mark.parametrize(
    "call", [lambda function, *args, **options: function(*args, **options), in_worker], ids=["main", "worker"]
)


@contextmanager
def a_second() -> Iterator[None]:
    """Of computing time of all threads; what else the machine does must not count."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 1


GSM8K = "He has 6 boxes of 7, so <<6*7=42>>42 apples.\n#### 42"


@pytest.mark.parametrize(
    "completion",
    ["#### 42", "#### 42.0", "####42.", r"So \boxed{42}.", r"\boxed{\frac{84}{2}}", "#### $42", "#### ４２"],
)
def test_gsm8k_right_and_formatted(completion):
    assert gsm8k_score(completion, GSM8K) == Score(1.0, correct=True, formatted=True)


@pytest.mark.parametrize("completion", ["42", "The answer is 42.", "**42**", "$42.00", "84/2", "42 apples"])
def test_gsm8k_right_and_bare(completion):
    assert gsm8k_score(completion, GSM8K) == Score(1.0, correct=True, formatted=False)


@pytest.mark.parametrize(
    ("completion", "formatted"),
    [
        ("", False),
        ("no idea", False),
        ("43", False),
        ("#### −42", True),
        ("#### 42\n#### 43", True),
        (r"\boxed{43} 42", True),
        ("42, so #### 43", True),
        ("#### 4200%", True),
        ("#### 42.0000000000000000001", True),
        ("#### 1e999999999", False),
        ("9" * 100_000, False),
    ],
)
def test_gsm8k_wrong(completion, formatted):
    assert gsm8k_score(completion, GSM8K) == Score(0.0, correct=False, formatted=formatted)


@pytest.mark.parametrize(
    ("answer", "right"), [("#### 1,000", "1000"), ("#### -3", "−3"), ("#### 0", "0.0"), ("7", "7")]
)
def test_gsm8k_references(answer, right):
    assert gsm8k_score(f"#### {right}", answer).correct


def test_gsm8k_reference_without_a_number_is_unscorable():
    assert gsm8k_score("#### 42", "forty-two") == UNSCORABLE


CASES: list[tuple[str, Mapping[str, Any], str, float]] = [
    ("chain_sum", SUM, "42", 1),
    ("chain_sum", SUM, "+42.00", 1),
    ("chain_sum", SUM, "0,042", 1),
    ("chain_sum", SUM, "4_2", 1),  # Decimal's underscores, and digits of any script
    ("chain_sum", SUM, "٤٢", 1),
    ("chain_sum", SUM, "420e-1", 1),
    ("chain_sum", SUM, "43", 0),
    ("chain_sum", SUM, "", 0),
    ("chain_sum", SUM, "NaN", 0),
    ("chain_sum", SUM, "sNaN", 0),
    ("chain_sum", SUM, "1e999999999999999999", 0),
    ("chain_sum", SUM, "9" * 5000, 0),
    ("chain_sum", SUM, "it is 42", 2 / 8),  # what contains the reference
    ("chain_sum", SUM, "-42", 2 / 3),
    ("chain_sum", DIGIT, "14", 1 / 2),
    ("graph_color", TRIANGLE, PATH, 1),
    ("graph_color", TRIANGLE, '{"0": 1.0, "1": 2, "2": true, "extra": []}', 1),
    ("graph_color", TRIANGLE, "[1, 2, 1, 0, 1, 2]", 1),  # a list whose values happen to be all vertices
    ("graph_color", TRIANGLE, '{"0": 1, "1": 1, "2": 1}', 0.01),
    ("graph_color", TRIANGLE, '{"0": 1, "1": 3, "2": 1}', 0.01),
    ("graph_color", TRIANGLE, '{"0": 1, "1": NaN, "2": 1}', 0.01),
    ("graph_color", TRIANGLE, "{}", 0.01),
    ("graph_color", TRIANGLE, "[]", 0.01),
    ("graph_color", TRIANGLE, '{"0": [], "1": 1, "2": 1}', 0),
    ("graph_color", TRIANGLE, "5", 0),
    ("graph_color", TRIANGLE, "NaN", 0),
    ("graph_color", TRIANGLE, '"text"', 0),
    ("graph_color", TRIANGLE, "9" * 5000, 0),  # an int of more than 4300 digits
    ("graph_color", TRIANGLE, "[" * 9000, 0),  # RecursionError
    ("graph_color", TRIANGLE, "{0: 1, 1: 2, 2: 1}", 0),
    ("graph_color", TRIANGLE, "", 0),
    ("knights_knaves", ISLAND, "Emma is a knight, and Liam is a knave.", 1),
    ("knights_knaves", ISLAND, "liam is a KNAVE (emma knight)", 1),
    ("knights_knaves", ISLAND, "So Emma is a knight and Liam is a knave", 1),
    ("knights_knaves", ISLAND, "Emma is a knight, and Liam is a knight.", 0.65),
    ("knights_knaves", ISLAND, "Emma is a knight, and Emma is a knave.", 0.65),  # one person, both roles
    ("knights_knaves", ISLAND, "Emma is not a knight, Liam is a knave.", 0.65),  # a person called "not"
    ("knights_knaves", ISLAND, "Emma is a knave, and Liam is a knight.", 0),
    ("knights_knaves", ISLAND, "Emma is a knight.", 0),
    ("knights_knaves", ISLAND, "**Emma** is a knight, and **Liam** is a knave.", 0),
    ("knights_knaves", ISLAND, "Emma: knight, Liam: knave", 0),
    ("knights_knaves", ISLAND, "If Ava is a knight, then Emma is a knight, and Liam is a knave.", 0),
    ("knights_knaves", ISLAND, "", 0),
]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("name", "entry", "answer", "native"), CASES)
def test_gym_by_hand(name, entry, answer, native, binary):
    correct = native == 1
    reward = float(correct) if binary else pytest.approx(native)
    for completion, formatted in ((tags(answer), True), (answer, False)):
        score = gym_score(name, completion, entry, binary=binary)
        assert (score.reward, score.correct, score.formatted) == (reward, correct, formatted)
    assert gym_score(name, f" {answer}\n", entry, binary=binary, tagged=False).reward == reward


@pytest.mark.parametrize("name", TASKS)
def test_generated_tasks(name):
    entry = ENTRIES[name]
    answer = entry["answer"] or json.dumps(entry["metadata"]["possible_answer"])
    right = Score(1.0, correct=True, formatted=True)
    for binary in (False, True):
        assert gym_score(name, tags(answer), entry, binary=binary) == right
        assert gym_score(name, answer, entry, binary=binary, tagged=False) == right


@pytest.mark.parametrize(
    ("completion", "answer", "formatted"),
    [
        ("<answer>42</answer>", "42", True),
        ("<answer> \n42 </answer> done", "42", True),
        ("<answer>1</answer> no, <answer>42</answer>", "42", True),
        ("<answer>42</answer> or <answer>43", "42", True),
        ("<answer>42</answer></answer>", "42", True),
        ("<answer><answer>42</answer>", "42", True),
        ("</answer><answer>42", "</answer><answer>42", False),
        ("<answer>42", "<answer>42", False),
        ("<answer></answer>42", "", True),
        (" 42 ", "42", False),
        ("", "", False),
    ],
)
def test_the_last_closed_tags_hold_the_answer(completion, answer, formatted):
    score = gym_score("chain_sum", completion, SUM, binary=False)
    assert score.formatted is formatted
    assert score.reward == gym_score("chain_sum", answer, SUM, binary=False, tagged=False).reward
    assert score.correct is (answer == "42")


@pytest.mark.parametrize(
    ("name", "completion", "formatted"),
    [
        ("chain_sum", "43", True),
        ("chain_sum", " -7\n", True),
        ("chain_sum", "+7", False),
        ("chain_sum", "42.0", False),
        ("chain_sum", "٤٢", False),
        ("chain_sum", "42\n42", False),
        ("chain_sum", "<answer>42</answer>", False),
        ("graph_color", '{"0": 5}', True),
        ("graph_color", "[1]", False),
        ("graph_color", '{"0": "red"}', False),
        ("graph_color", "[" * 9000, False),
        ("knights_knaves", "Emma is a sage, and Liam is an egoist.", True),
        ("knights_knaves", "Emma is a fool", True),
        ("knights_knaves", "I think Emma is a fool", False),
        ("basic_arithmetic", "x", True),
        ("basic_arithmetic", " ", False),
    ],
)
def test_bare_answers_are_formatted_by_their_shape(name, completion, formatted):
    entry = ENTRIES.get(name, SUM)
    assert gym_score(name, completion, entry, binary=True, tagged=False).formatted is formatted


def test_long_answers_are_wrong():
    padding = " " * LONGEST_ANSWER
    assert gym_score("chain_sum", f"{padding}42{padding}", SUM, binary=True).correct
    assert gym_score("chain_sum", f"{padding}<answer>42{padding}</answer>", SUM, binary=True).correct
    assert gym_score("chain_sum", f"0{'0' * LONGEST_ANSWER}42", SUM, binary=False) == Score(0.0, False, False)


def test_unknown_task():
    with pytest.raises(ValueError, match="tetris"):
        gym_score("tetris", "42", SUM, binary=True)


def test_an_entry_that_the_scorer_fails_on_is_unscorable():
    assert gym_score("chain_sum", "42", {}, binary=True) == UNSCORABLE
    assert gym_score("chain_sum", "43", {"answer": None}, binary=False) == UNSCORABLE


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, -math.inf, -0.1, 1.1, 2, "x", 1j, [1]])
def test_guarded_refuses(reward):
    assert guarded(lambda: Score(reward, correct=True, formatted=True))() == UNSCORABLE


@pytest.mark.parametrize("reward", [0, 0.0, 0.5, 1, True, "0.5"])
def test_guarded_lets_pass(reward):
    score = guarded(lambda: Score(reward, correct=True, formatted=False))()
    assert score == Score(float(reward), correct=True, formatted=False)
    assert type(score.reward) is float


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError, ZeroDivisionError, AssertionError])
def test_guarded_catches(error):
    def scorer() -> Score:
        raise error

    assert guarded(scorer)() == UNSCORABLE
    assert guarded(lambda: None)() == UNSCORABLE


def test_guarded_can_be_interrupted():
    def scorer() -> Score:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(scorer)()


def scores_in_time(call, text: str, tasks: Mapping[str, Mapping[str, Any]]) -> None:
    with a_second():
        scores = [call(gsm8k_score, text, GSM8K)]
        for name, entry in tasks.items():
            for binary, tagged in ((False, True), (True, False)):
                scores.append(call(gym_score, name, text, entry, binary=binary, tagged=tagged))
                assert not binary or scores[-1].reward in (0.0, 1.0)
    for score in scores:
        assert score.reward is None or (type(score.reward) is float and 0 <= score.reward <= 1)
        assert type(score.correct) is bool
        assert type(score.formatted) is bool
        assert not score.correct or score.reward == 1


FRAGMENTS = [
    "####",
    "\\boxed{",
    "{",
    "}",
    "0",
    "1",
    "42",
    "−",
    "-",
    "e",
    "9" * 5000,
    "[",
    "]",
    '"',
    "^",
    "**",
    "\\frac",
]
FRAGMENTS += ["<answer>", "</answer>", ":", ",", '"0"', '{"0": 1', "null", "NaN", "Emma", " is a ", "knight", " ", "\n"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.sampled_from("012") | st.text(), values),
    max_leaves=8,
)
texts = st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join) | JSON.map(json.dumps).map(tags)


@THREADS
@given(text=texts)
@settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text(call, text):
    scores_in_time(call, text, {"chain_sum": SUM, "graph_color": TRIANGLE, "knights_knaves": ISLAND})


PIECES = ["[", "{", "9", "9^", '"', "(", "-", " ", "#### ", "\\boxed{", "<answer>", "<answer></answer>", "</answer>"]
PIECES += ['{"0":', "[[],", "1e9", "Emma is a knight, ", " and ", "4,", "\\u", "\0", "\ud800"]


@THREADS
@pytest.mark.parametrize("form", ["{}", "<answer>{}</answer>"])
@pytest.mark.parametrize("piece", PIECES)
def test_huge_text(call, piece, form):
    for size in (LONGEST_ANSWER, 100_000):
        scores_in_time(call, form.format(piece * (size // len(piece))), ENTRIES)
