"""Nll per row, recorded during training, so that a curve can be drawn after a fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_POINTS = 200  # of a line; of more, as many are kept, the first and the last among them
TARGET = "target 0"  # name of the only line of a model for one target
ALL_TARGETS = "all targets"  # name of the only line of a sum of trees that several targets share


class Line(NamedTuple):
    """Nll per row at some steps: step int64 (k,), nll float64 (k,), k <= 200.

    Steps do not fall and values are finite.
    """

    step: Ints
    nll: Floats


@dataclass(frozen=True, eq=False)
class TrainingCurve:
    """Nll per row, recorded during training; lower is better.

    Attribute `training_curve_` of a fitted estimator. It is about the last fit, and does not change
    when rows are added without a fit. Model files hold it.

    Attributes
    ----------
    step : tuple of int64 (k,)
        Steps of the optimiser, one array per line; 0 is the beginning. They never fall. At most 200
        points per line are kept: of longer trainings, every few steps.
    nll : tuple of float64 (k,)
        Nll per training row before (`TrieGPRegressor`) or after (`BinaryTreeGPRegressor`) so many
        steps, in standardised units of the target. Finite; steps at which it was not are left out.
    held_out : tuple of (int64 (j,), float64 (j,)), or None
        Steps and nll per held-out row, one pair per line; None if no rows are held out.
    names : tuple of str
        Names of the lines, such as "member 3" or "target 1".

    Notes
    -----
    `TrieGPRegressor` has one line per target, or one for all targets that share a model: the mean
    of their nll. Every step is about other rows, some 500, so the line
    is not smooth; up to 640 rows it is about all of them. From 1,000 rows on some are held out. The
    parameters with the lowest held-out nll are those of the model.

    `BinaryTreeGPRegressor` has one line per member of the mixture, in the order of
    `ensembles_[0].members`; if every target has its own members, those of the first target come
    first. Above 40,000 rows, members are trained on growing parts of the rows. A line then has two
    values at the step where a larger part begins: on the smaller part and on the larger one.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 2))
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    >>> model = BinaryTreeGPRegressor(n_members=2, max_iter=20, random_state=0).fit(X, y)
    >>> curve = model.training_curve_
    >>> curve.names[0], bool(curve.nll[0][-1] < curve.nll[0][0])
    ('member 0', True)
    """

    step: tuple[Ints, ...]
    nll: tuple[Floats, ...]
    held_out: tuple[tuple[Ints, Floats], ...] | None
    names: tuple[str, ...]


def make_line(points: Iterable[tuple[int, float]]) -> Line:
    """A line through points (step, nll): the finite ones, at most 200 of them."""
    finite = [(step, nll) for step, nll in points if np.isfinite(nll)]
    kept = finite
    if len(finite) > MOST_POINTS:
        places = np.linspace(0, len(finite) - 1, MOST_POINTS).round().astype(int)
        kept = [finite[k] for k in places.tolist()]
    return Line(
        np.array([step for step, _ in kept], np.int64),
        np.array([nll for _, nll in kept], np.float64),
    )


def join_lines(one: Line, more: Line, n_steps: int) -> Line:
    """A line, and what followed after its n_steps steps; at most 200 points."""
    steps, values = np.append(one.step, more.step + n_steps), np.append(one.nll, more.nll)
    return make_line(zip(steps.tolist(), values.tolist(), strict=True))


def make_curve(
    lines: Sequence[Line], names: Sequence[str], held_out: Sequence[Line] | None = None
) -> TrainingCurve:
    """The curve of these lines."""
    step, nll = tuple(line.step for line in lines), tuple(line.nll for line in lines)
    held = None if held_out is None else tuple((line.step, line.nll) for line in held_out)
    return TrainingCurve(step, nll, held, tuple(names))


def join_curves(curves: Sequence[TrainingCurve | None]) -> TrainingCurve | None:
    """One curve of the models of several targets; None if one of them has none.

    Names of lines begin with the target they are about, if there are several models.
    """
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    if len(known) == 1:
        return known[0]
    names = [
        f"target {t}" if name == TARGET else f"target {t}, {name}"
        for t, curve in enumerate(known)
        for name in curve.names
    ]
    held = [curve.held_out for curve in known if curve.held_out is not None]
    return TrainingCurve(
        tuple(step for curve in known for step in curve.step),
        tuple(nll for curve in known for nll in curve.nll),
        tuple(pair for pairs in held for pair in pairs) if len(held) == len(known) else None,
        tuple(names),
    )
