"""How far an update points away from the one it should be, per seed; vectors are [S, D]."""

from typing import NamedTuple

from torch import Tensor

ARTEFACT_EPSILON = 1e-12


class Misalignment(NamedTuple):
    """1 − cos(g, g*) per seed, [S] each."""

    exact: Tensor
    """Computed as ½‖ĝ − ĝ*‖², which resolves values far below the machine precision of 1; 1 for a zero update."""
    with_epsilon: Tensor
    """1 − g·g* / (sqrt(‖g‖² + ε) sqrt(‖g*‖² + ε)), ε = 1e-12: the artefact's measure, whose floor is its ε."""


def misalignment(update: Tensor, ideal: Tensor) -> Misalignment:
    """Compare updates g with ideal ones g*, both [S, D] (arXiv 2604.06159, section 3)."""
    update_square, ideal_square = dot(update, update), dot(ideal, ideal)
    difference = scaled(update, update_square) - scaled(ideal, ideal_square)
    exact = dot(difference, difference) / 2
    exact = exact.masked_fill((update_square == 0) | (ideal_square == 0), 1)
    norms = ((update_square + ARTEFACT_EPSILON) * (ideal_square + ARTEFACT_EPSILON)).sqrt()
    return Misalignment(exact, 1 - dot(update, ideal) / norms)


def unit(vectors: Tensor) -> Tensor:
    """Scale each vector [S, D] to length 1; the zero vector stays zero."""
    return scaled(vectors, dot(vectors, vectors))


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Inner product per seed, [S, D] · [S, D] → [S]."""
    return (left * right).sum(1)


def scaled(vectors: Tensor, square: Tensor) -> Tensor:
    """Divide vectors [S, D] by the square root of ``square`` [S], or by 1 where that is 0."""
    return vectors / square.sqrt().masked_fill(square == 0, 1)[:, None]
