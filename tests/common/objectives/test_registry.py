"""Objectives by name and option; every mistake is answered in one line that says what is allowed."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from common import objectives
from common.objectives import (
    Advantage,
    ClippedSurrogate,
    CrossEntropy,
    DelightfulGradient,
    GroupAdvantage,
    Objective,
    PolicyGradient,
    Target,
    registry,
)


def refusal(function, *arguments):
    """Return the message of the ValueError, which must be a single line."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the caller looks at the message
        function(*arguments)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.fixture
def empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", {})


class TestPaperDefaults:
    def test_names(self):
        assert objectives.names() == [
            "pg",
            "dg",
            "ppo",
            "grpo",
            "grpo_no_kl",
            "grpo_zv_masked",
            "group_pg",
            "tpo",
            "tpo_no_anchor",
            "ce",
        ]

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("pg", {}),
            ("dg", {"eta": 1.0}),
            ("ppo", {"clip": 0.2, "beta": 0.0, "max_log_ratio": 20.0}),
            (
                "grpo",
                {"std_epsilon": 1e-8, "drop_zero_variance": False, "clip": 0.2, "beta": 0.04, "max_log_ratio": 20.0},
            ),
            ("grpo_no_kl", {"beta": 0.0, "clip": 0.2}),
            ("grpo_zv_masked", {"drop_zero_variance": True, "beta": 0.04}),
            ("group_pg", {"std_epsilon": 0.0, "drop_zero_variance": False}),
            ("tpo", {"eta": 1.0, "anchored": True}),
            ("tpo_no_anchor", {"eta": 1.0, "anchored": False}),
            ("ce", {}),
        ],
    )
    def test_options(self, name, expected):
        options = objectives.get(name).options
        assert {key: options[key] for key in expected} == expected
        if name in ("pg", "ce", "dg", "ppo", "tpo"):
            assert options == expected

    def test_only_ce_needs_labels(self):
        assert [name for name in objectives.names() if objectives.get(name).needs_labels] == ["ce"]

    def test_which_compare_candidates(self):
        alone = [name for name in objectives.names() if not objectives.get(name).grouped]
        assert alone == ["pg", "dg", "ppo"]


class TestOptions:
    def test_are_replaced_in_a_copy(self):
        changed = objectives.get("tpo", {"eta": 0.5, "anchored": False})
        assert changed.options == {"eta": 0.5, "anchored": False}
        assert objectives.get("tpo").options == {"eta": 1.0, "anchored": True}

    def test_reach_signal_and_loss(self):
        changed = objectives.get("grpo", {"std_epsilon": 0.5, "clip": 0.1, "beta": 0})
        assert changed.signal == GroupAdvantage(0.5)
        assert changed.loss == ClippedSurrogate(0.1, 0)

    @pytest.mark.parametrize(
        ("name", "key", "nearest"),
        [("tpo", "etta", "eta"), ("grpo", "betta", "beta"), ("grpo", "clipp", "clip"), ("dg", "Eta", "eta")],
    )
    def test_unknown_names_the_nearest(self, name, key, nearest):
        message = refusal(objectives.get, name, {key: 1.0})
        assert message.startswith(f"{key}: {name} has no such option (did you mean '{nearest}'?); it has ")

    def test_unknown_without_a_neighbour_names_all(self):
        assert refusal(objectives.get, "tpo", {"zzz": 1}) == "zzz: tpo has no such option; it has anchored, eta"
        assert refusal(objectives.get, "pg", {"eta": 1}) == "eta: pg has no such option; it has none"

    @pytest.mark.parametrize("key", ["self", "options", "name", "signal", "grouped"])
    def test_names_of_the_package_are_no_options(self, key):
        assert refusal(objectives.get, "tpo", {key: 1}).startswith(f"{key}: tpo has no such option")

    @pytest.mark.parametrize(
        ("name", "key", "value"),
        [
            ("tpo", "eta", 0),
            ("tpo", "eta", -1.0),
            ("tpo", "eta", math.nan),
            ("tpo_no_anchor", "eta", 0.0),
            ("dg", "eta", 0),
            ("dg", "eta", -math.inf),
            ("grpo", "beta", -0.04),
            ("grpo", "beta", math.nan),
            ("grpo", "clip", 0),
            ("grpo", "clip", 1),
            ("ppo", "clip", 1.2),
            ("ppo", "clip", -0.2),
            ("ppo", "clip", math.nan),
            ("ppo", "max_log_ratio", 0),
            ("grpo", "std_epsilon", -1e-8),
            ("group_pg", "std_epsilon", math.nan),
        ],
    )
    def test_values_out_of_range(self, name, key, value):
        assert refusal(objectives.get, name, {key: value}).startswith(f"{key}: {value} is not allowed; it must ")

    @pytest.mark.parametrize(
        ("name", "key", "value", "kind"),
        [
            ("tpo", "eta", True, "a number"),
            ("tpo", "eta", "0.5", "a number"),
            ("tpo", "eta", "1\n2", "a number"),
            ("tpo", "eta", None, "a number"),
            ("tpo", "eta", [1.0], "a number"),
            ("grpo", "beta", False, "a number"),
            ("tpo", "anchored", 1, "true or false"),
            ("tpo", "anchored", "false", "true or false"),
            ("grpo", "drop_zero_variance", 0.0, "true or false"),
        ],
    )
    def test_values_of_another_kind(self, name, key, value, kind):
        assert refusal(objectives.get, name, {key: value}) == f"{key}: {value!r} is not allowed; {name} takes {kind}"

    @pytest.mark.parametrize(
        "build",
        [
            lambda: Target(eta=0),
            lambda: DelightfulGradient(eta=-1),
            lambda: ClippedSurrogate(clip=0),
            lambda: ClippedSurrogate(beta=-1),
            lambda: ClippedSurrogate(max_log_ratio=-1),
            lambda: GroupAdvantage(std_epsilon=-1),
        ],
    )
    def test_parts_refuse_them_too(self, build):
        assert "is not allowed; it must " in refusal(build)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "nearest"), [("tpoo", "tpo"), ("grpo_nokl", "grpo_no_kl"), ("group-pg", "group_pg"), ("gpro", "grpo")]
    )
    def test_unknown_names_the_nearest(self, name, nearest):
        message = refusal(objectives.get, name)
        assert message.startswith(f"objective: {name!r} is unknown (did you mean '{nearest}'?); there are pg, dg, ")
        assert message.endswith("or module:ATTRIBUTE for your own")

    @pytest.mark.parametrize("name", ["", "xyzzy", "a\nb"])
    def test_unknown_without_a_neighbour(self, name):
        assert refusal(objectives.get, name).startswith(f"objective: {name!r} is unknown; there are pg, dg, ")


class TestRegister:
    def test_makes_it_available(self, empty_registry):
        mine = objectives.register(Objective("mine", "Mine", Target(), CrossEntropy()))
        assert objectives.get("mine") == mine
        assert objectives.names() == ["mine"]

    def test_refuses_a_name_twice(self, empty_registry):
        objectives.register(Objective("mine", "Mine", Target(), CrossEntropy()))
        message = refusal(objectives.register, Objective("mine", "Other", Advantage(), PolicyGradient()))
        assert message == "objective 'mine' is already registered; choose another name"
        assert objectives.get("mine").title == "Mine"

    @pytest.mark.parametrize(
        ("signal", "loss"),
        [(Target(), PolicyGradient()), (Advantage(), CrossEntropy()), (GroupAdvantage(), CrossEntropy())],
    )
    def test_refuses_a_signal_that_the_loss_does_not_follow(self, empty_registry, signal, loss):
        message = refusal(objectives.register, Objective("mine", "Mine", signal, loss))
        assert message == (
            f"objective 'mine': its loss follows the signal's {loss.follows}, but its signal makes the {signal.makes}"
        )
        assert objectives.names() == []

    def test_refuses_an_option_of_both_parts(self, empty_registry):
        @dataclass(frozen=True)
        class Tempered:
            eta: float = 1.0
            follows: ClassVar[str] = "target"
            single_epoch: ClassVar[bool] = False

            def __call__(self, logp, logp_old, signal):
                raise NotImplementedError

        message = refusal(objectives.register, Objective("mine", "Mine", Target(), Tempered()))
        assert message == "objective 'mine': signal and loss share the option eta"


class TestImportedObjectives:
    SOURCE = """
from dataclasses import dataclass
from typing import ClassVar

from common.objectives import Advantage, Objective, PolicyGradient, Target


@dataclass(frozen=True)
class Squared:
    scale: float = 2.0
    follows: ClassVar[str] = "advantage"
    single_epoch: ClassVar[bool] = False

    def __call__(self, logp, logp_old, signal):
        return self.scale * signal.advantage * logp.square()


MINE = Objective("mine", "Mine", Advantage(), Squared())
MISMATCHED = Objective("mismatched", "Mismatched", Target(), PolicyGradient())
NUMBER = 3
"""

    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        """Return a function that writes a module and gives its name, a new one each time."""
        monkeypatch.syspath_prepend(tmp_path)
        written = []

        def write(source):
            name = f"user_objective_{tmp_path.name}_{len(written)}"
            (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
            written.append(name)
            return name

        return write

    def test_is_found_and_takes_options(self, module):
        objective = objectives.get(f"{module(self.SOURCE)}:MINE", {"scale": 3.0})
        signal = objective.signal(torch.tensor([1.0, 2.0]))
        assert objective.loss(torch.tensor([-1.0, -2.0]), None, signal).tolist() == [3.0, 24.0]
        equal = torch.ones(2, dtype=torch.bool)
        assert not objective.zero_gradient(equal, equal, snapshot=True).any()
        assert "mine" not in objectives.names()

    def test_of_this_package_is_found(self):
        assert objectives.get("common.objectives.registry:_objective").name == "ce"

    @pytest.mark.parametrize(
        ("attribute", "expected"),
        [
            ("NUMBER", "is a int; expected a common.objectives.Objective"),
            ("MINED", "cannot be imported (AttributeError: "),
            ("", "cannot be imported (AttributeError: "),
            ("MINE:MINE", "cannot be imported (AttributeError: "),
            ("Squared", "is a type; expected a common.objectives.Objective"),
        ],
    )
    def test_attribute_that_is_none(self, module, attribute, expected):
        path = f"{module(self.SOURCE)}:{attribute}"
        assert refusal(objectives.get, path).startswith(f"objective: {path!r} {expected}")

    def test_parts_that_do_not_fit(self, module):
        message = refusal(objectives.get, f"{module(self.SOURCE)}:MISMATCHED")
        assert message.startswith("objective 'mismatched': its loss follows the signal's advantage")

    @pytest.mark.parametrize(
        "path", ["no_such_module:X", "no.such:X", ":X", ".relative:X", "..:X", ":", "a b:X", "a\n:X"]
    )
    def test_no_such_module(self, path):
        message = refusal(objectives.get, path)
        assert message.startswith(f"objective: {path!r} cannot be imported (")
        assert message.endswith("); expected module:ATTRIBUTE")

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("raise ImportError('first\\nsecond')", "(ImportError: first second)"),
            ("import no_such_module_either", "(ModuleNotFoundError: No module named 'no_such_module_either')"),
            ("1 / 0", "(ZeroDivisionError: division by zero)"),
            ("raise RuntimeError('''a\n\n  b''')", "(RuntimeError: a b)"),
            ("def broken(:", "(SyntaxError: invalid syntax ("),
        ],
    )
    def test_module_that_fails_while_it_is_imported(self, module, source, reason):
        assert f" cannot be imported {reason}" in refusal(objectives.get, f"{module(source)}:MINE")

    def test_unknown_option_names_the_nearest(self, module):
        message = refusal(objectives.get, f"{module(self.SOURCE)}:MINE", {"scales": 1.0})
        assert message == "scales: mine has no such option (did you mean 'scale'?); it has scale"
