"""The tasks: held-out problems are never trained on, order follows the seed, mistakes are one line."""

import json
from pathlib import Path

import pytest

from common.errors import UserError
from llm_rlvr.tasks import Task, load, score

GSM8K = Path(__file__).parent / "data" / "gsm8k"
SUMS = Task("chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
EVERY = [SUMS, Task("graph_color"), Task("knights_knaves"), Task("gsm8k", options={"data": str(GSM8K)})]


def loaded(task: Task, train: int = 12, held_out: int = 5, seed: int = 0):
    return load(task, train=train, held_out=held_out, seed=seed, experiment_seed=0)


@pytest.mark.parametrize("task", EVERY, ids=lambda task: task.name)
class TestEvery:
    def test_gives_as_many_as_asked_for_and_none_in_both(self, task):
        problems = loaded(task)
        assert len(problems.train) == 12
        held_out = {problem.question for problem in problems.held_out}
        assert len(held_out) == 5
        assert held_out.isdisjoint(problem.question for problem in problems.train)

    def test_training_follows_the_seed_and_held_out_problems_do_not(self, task):
        first, again, other = loaded(task), loaded(task), loaded(task, seed=1)
        assert first == again
        assert first.held_out == other.held_out
        assert first.train != other.train

    def test_more_steps_begin_with_the_same_problems(self, task):
        assert loaded(task, train=4).train == loaded(task).train[:4]

    def test_a_chat_ends_with_the_user(self, task):
        for problem in loaded(task).train:
            assert problem.chat[-1]["role"] == "user"
            assert problem.question in problem.chat[-1]["content"]

    def test_an_empty_completion_is_worth_nothing(self, task):
        assert score(task, loaded(task).train[0].payload, "").reward == pytest.approx(0.0, abs=0.0)


def test_right_answers_are_right():
    for problem in loaded(SUMS).train:
        answer = json.loads(problem.payload)["answer"]
        for text, formatted in ((answer, True), (f"the sum is {answer}", False)):
            judged = score(SUMS, problem.payload, text)
            assert (judged.reward, judged.correct, judged.formatted) == (1.0, True, formatted)
    colours = Task("graph_color")
    for problem in loaded(colours).train:
        possible = json.loads(problem.payload)["metadata"]["possible_answer"]
        assert score(colours, problem.payload, f"So <answer>{json.dumps(possible)}</answer>").reward == 1.0
    riddle = Task("knights_knaves")
    for problem in loaded(riddle).train:
        answer = json.loads(problem.payload)["answer"]
        assert score(riddle, problem.payload, f"<answer>{answer}</answer>").reward == 1.0
    words = EVERY[-1]
    for problem in loaded(words).train:
        answer = json.loads(problem.payload).rpartition("#### ")[2]
        assert score(words, problem.payload, f"It is\n#### {answer}").reward == 1.0
        assert score(words, problem.payload, f"It is\n#### {answer}1").reward == 0.0


def test_gsm8k_goes_through_the_training_split_before_it_repeats():
    questions = [problem.question for problem in loaded(EVERY[-1], train=24).train]
    assert len(set(questions[:12])) == 12
    assert set(questions[12:]) == set(questions[:12])


@pytest.mark.parametrize(
    ("task", "train", "held_out", "said"),
    [
        (Task("sums"), 1, 1, "task: 'sums' is unknown; choose from gsm8k, chain_sum, graph_color, knights_knaves"),
        (SUMS, 1, 500, "eval_problems: 500 is not allowed; chain_sum has about"),
        (Task("gsm8k", options={"data": "/nowhere"}), 1, 1, "task_options.data: /nowhere/train.jsonl does not exist"),
        (EVERY[-1], 1, 7, "eval_problems: 7 is not allowed; the test split has 6"),
        (Task("graph_color", options={"num_colors": -1}), 1, 1, "task_options: {'num_colors': -1} are not allowed"),
        (Task("graph_color", options={"colours": 3}), 1, 1, "task_options: {'colours': 3} are not allowed"),
    ],
)
def test_mistakes_are_one_line(task, train, held_out, said):
    with pytest.raises(UserError) as told:
        loaded(task, train, held_out)
    assert str(told.value).startswith(said)
    assert "\n" not in str(told.value)


def test_rows_without_an_answer_are_refused(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "How many?", "answer": "many"}\n')
    with pytest.raises(UserError, match="a row of train lacks a question or an answer"):
        loaded(Task("gsm8k", options={"data": str(tmp_path)}), 1, 1)


def test_a_hub_that_does_not_answer_is_told(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"gsm8k could not be read from openai/gsm8k on the hub.*data=PATH"):
        loaded(Task("gsm8k"), 1, 1)
