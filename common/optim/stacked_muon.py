"""Muon for matrices and Adam for everything else, each seed on its own.

Source: arXiv 2604.06159, sequence tasks, where the optimiser is Optax's Muon; Jordan et al. 2024 for Muon itself.
"""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from common.optim.layout import Layout
from common.optim.newton_schulz import newton_schulz
from common.runs.settings import require, require_choice

MOMENTUM_FORMS = ("optax", "torch")

MUON_DECAY = 0.95
ADAM_DECAY = 0.9
ADAM_SQUARE_DECAY = 0.999
ADAM_EPSILON = 1e-8
OPTAX_NORM_EPSILON = 1e-8
"""Added to a matrix's Frobenius norm."""
TORCH_NORM_FLOOR = 1e-7
"""The least that a matrix is divided by."""


class StackedMuon:
    """Update parameters [S, ...] in place; a seed's update depends on its own gradients alone. No weight decay.

    With moments m_t = β m_{t−1} + (1−β) g_t and v_t = β₂ v_{t−1} + (1−β₂) g_t², and the bias-corrected Nesterov moment
    n(β) = β m_t / (1−β^{t+1}) + (1−β) g_t / (1−β^t), t = 1, 2, ...:

    * a matrix moves by −lr · √max(1, columns/rows) · NewtonSchulz(M / divisor), β = 0.95, rows being the inputs and
      columns the outputs. "optax": M = n(β), divisor ‖M‖ + 1e-8. "torch" (``torch.optim.Muon``): M = β m_t + (1−β) g_t,
      divisor max(‖M‖, 1e-7). ‖·‖ is Frobenius'.
    * any other parameter moves by −lr · m̂ / (√(v_t / (1−β₂^t)) + 1e-8), β = 0.9, β₂ = 0.999. "optax": m̂ = n(β).
      "torch" (``torch.optim.Adam``): m̂ = m_t / (1−β^t).

    Everything is computed in the parameters' own type. Muon normalises away the size of a gradient: as long as its
    momentum is not zero, a zero gradient still makes a step of full size.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        matrices: Collection[str],
        learning_rate: float,
        momentum_form: str = "optax",
    ) -> None:
        """Start with moments of zero.

        Args:
            parameters: by name, [S, ...], all float32 or all float64 on one device; views of other tensors will do.
            matrices: the names of those that go to Muon, each [S, rows, columns].
            learning_rate: lr.
            momentum_form: one of ``MOMENTUM_FORMS``.

        Raises:
            ValueError: a learning rate that is not positive, an unknown momentum form, no parameters, parameters
                that cannot be stacked, or a name in ``matrices`` that is not that of a matrix.
        """
        require("learning_rate", learning_rate, above=0)
        require_choice("momentum_form", momentum_form, MOMENTUM_FORMS)
        template = _check_parameters(parameters)
        _check_matrices(matrices, parameters)
        self.learning_rate = learning_rate
        self.steps = 0
        """Updates done, t."""
        self._optax = momentum_form == "optax"
        self._parameters = dict(parameters)
        self._matrices = Layout({name: value for name, value in parameters.items() if name in matrices}, template)
        self._others = Layout({name: value for name, value in parameters.items() if name not in matrices}, template)
        self._momentum = self._matrices.zeros()
        self._first = self._others.zeros()
        self._second = self._others.zeros()
        self._same_shape: dict[tuple[int, ...], list[str]] = {}
        for name in self._matrices.views(self._momentum):
            self._same_shape.setdefault(tuple(sorted(parameters[name].shape[1:])), []).append(name)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Make one update and return the L2 norm of each seed's change over all parameters, [S].

        A gradient that is not finite spoils its own seed and no other. In float32 the square of a gradient above 1e19
        overflows, and what is divided by it does not move.

        Args:
            gradients: one for each parameter, of its shape and type.

        Raises:
            ValueError: a gradient is missing, unknown, or of another shape or type; nothing has changed then.
        """
        self._check_gradients(gradients)
        self.steps += 1
        muon, adam = self._muon_direction(gradients), self._adam_direction(gradients)
        for name, direction in (self._matrices.views(muon) | self._others.views(adam)).items():
            self._parameters[name].add_(direction, alpha=-self.learning_rate)
        norms = [torch.linalg.vector_norm(part, dim=1) for part in (muon, adam)]
        return self.learning_rate * torch.hypot(*norms)

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of all that ``step`` depends on besides the settings, the parameters excepted."""
        return {name: value.clone() for name, value in self._state().items()} | {"steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state; from there on every update is, to the bit, what it would have been.

        Raises:
            ValueError: the state is of other parameters or of another grouping; nothing has changed then.
        """
        own = self._state()
        for name in {**own, "steps": None, **state}:
            if name not in state:
                raise ValueError(f"state: {name!r} is missing")
            if name not in own and name != "steps":
                raise ValueError(f"state: {name!r} is not known here")
            if name in own:
                _check_like(f"state of {name!r}", state[name], own[name])
        for name, value in own.items():
            value.copy_(state[name])
        self.steps = int(state["steps"])

    def _state(self) -> dict[str, Tensor]:
        """Return the moments by parameter, as views."""
        matrices, others = self._matrices.views, self._others.views
        return {
            **{f"{name}.momentum": value for name, value in matrices(self._momentum).items()},
            **{f"{name}.first_moment": value for name, value in others(self._first).items()},
            **{f"{name}.second_moment": value for name, value in others(self._second).items()},
        }

    def _muon_direction(self, gradients: Mapping[str, Tensor]) -> Tensor:
        gradient = self._matrices.join(gradients)
        self._momentum.lerp_(gradient, 1 - MUON_DECAY)
        of_moment, of_gradient = MUON_DECAY, 1 - MUON_DECAY
        if self._optax:
            of_moment, of_gradient = _bias_corrected(MUON_DECAY, self.steps)
        direction = gradient.mul_(of_gradient).add_(self._momentum, alpha=of_moment)
        views = self._matrices.views(direction)
        for names in self._same_shape.values():
            stack = torch.stack([_wide(views[name]) for name in names])  # [n, S, shorter, longer]
            norm = torch.linalg.vector_norm(stack, dim=(-2, -1), keepdim=True)
            stack /= norm + OPTAX_NORM_EPSILON if self._optax else norm.clamp_min(TORCH_NORM_FLOOR)
            orthogonal = newton_schulz(stack.flatten(0, 1)).view_as(stack)
            for name, matrix in zip(names, orthogonal, strict=True):
                rows, columns = views[name].shape[1:]
                torch.mul(matrix, math.sqrt(max(1, columns / rows)), out=_wide(views[name]))
        return direction

    def _adam_direction(self, gradients: Mapping[str, Tensor]) -> Tensor:
        gradient = self._others.join(gradients)
        self._first.lerp_(gradient, 1 - ADAM_DECAY)
        self._second.mul_(ADAM_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - ADAM_SQUARE_DECAY)
        of_moment, of_gradient = 1 / (1 - ADAM_DECAY**self.steps), 0.0
        if self._optax:
            of_moment, of_gradient = _bias_corrected(ADAM_DECAY, self.steps)
        direction = gradient.mul_(of_gradient).add_(self._first, alpha=of_moment)
        return direction.div_((self._second / (1 - ADAM_SQUARE_DECAY**self.steps)).sqrt_().add_(ADAM_EPSILON))

    def _check_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            if gradients.get(name) is None:
                raise ValueError(f"gradients: that of {name!r} is missing")
            _check_like(f"gradient of {name!r}", gradients[name], parameter)
        if len(gradients) > len(self._parameters):
            unknown = next(name for name in gradients if name not in self._parameters)
            raise ValueError(f"gradients: {unknown!r} is not a parameter")


def _bias_corrected(decay: float, step: int) -> tuple[float, float]:
    """Return the weights of moment and gradient in the bias-corrected Nesterov moment of the given update, from 1."""
    return decay / (1 - decay ** (step + 1)), (1 - decay) / (1 - decay**step)


def _wide(matrices: Tensor) -> Tensor:
    """Return a view of matrices [..., rows, columns] with rows ≤ columns, transposed if need be."""
    return matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices


def _check_like(what: str, value: Tensor, expected: Tensor) -> None:
    if value.shape != expected.shape:
        raise ValueError(f"{what}: shape {tuple(value.shape)} is not allowed; it must be {tuple(expected.shape)}")
    if value.dtype != expected.dtype:
        raise ValueError(f"{what}: {value.dtype} is not allowed; it must be {expected.dtype}")


def _check_parameters(parameters: Mapping[str, Tensor]) -> Tensor:
    """Return one of the parameters if all can be stacked."""
    if not parameters:
        raise ValueError("parameters: there are none")
    template = next(iter(parameters.values()))
    for name, value in parameters.items():
        if value.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"parameter {name!r}: {value.dtype} is not allowed; it must be torch.float32 or torch.float64"
            )
        if value.ndim == 0 or len(value) != len(template):
            raise ValueError(
                f"parameter {name!r}: shape {tuple(value.shape)} does not lead with the seeds of the others"
            )
        if (value.dtype, value.device) != (template.dtype, template.device):
            raise ValueError(f"parameter {name!r}: {value.dtype} on {value.device} differs from the others'")
    return template


def _check_matrices(matrices: Collection[str], parameters: Mapping[str, Tensor]) -> None:
    for name in matrices:
        if name not in parameters:
            raise ValueError(f"matrices: {name!r} is not a parameter")
        if parameters[name].ndim != 3:
            shape = tuple(parameters[name].shape)
            raise ValueError(f"matrices: {name!r} of shape {shape} is not allowed; it must be [S, rows, columns]")
