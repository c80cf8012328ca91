"""Weights by bit: where the bits of each feature stand in the order of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.start import depths_of, features_of
from triegp.checks import whole_number
from triegp.encoding.quantiser import Quantiser
from triegp.metrics.forecasts import choose_target, unwrap
from triegp.plots.canvas import Display, Style, draw_cells, dress, list_names, ramp
from triegp.plots.features import names_of
from triegp.plots.palette import current_palette
from triegp.tree.order import BitOrder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_PLACES = 40  # places of an order that are shown
MOST_TEXTS = 250  # cells that are numbered


@dataclass(eq=False)
class WeightsDisplay(Display):
    """Which bit of which feature stands where in the order, and how much variance it carries.

    Use `from_estimator`.

    Attributes
    ----------
    names : tuple of str
        Columns that the model works on. A column of the table may be several: a category is its
        rank and its place in the list.
    weight : float64 (n_trees, n_columns, n_depths)
        Share of each bit in the prior variance of each tree, bits coarse to fine. They sum to 1 per
        tree.
    place : int64 (n_trees, n_columns, n_depths)
        Place of each bit in the order, from 1; 0 if the tree does not read it.
    tree_weight : float64 (n_trees,)
        Share of each tree: of its prior variance in a sum of trees, its weight in a mixture.
    tree : int or None
        The tree that is shown; None for the average of all.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import WeightsDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 2))
    >>> y = np.sin(6 * X[:, 1]) + 0.1 * rng.standard_normal(300)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> display = WeightsDisplay.from_estimator(model)
    >>> bool(display.weight[:, 1].sum() > display.weight[:, 0].sum())
    True
    """

    names: tuple[str, ...]
    weight: Floats
    place: Ints
    tree_weight: Floats
    tree: int | None

    @classmethod
    def from_estimator(
        cls, model: Any, *, tree: int | None = None, target: int | None = None, **style: Any
    ) -> Self:
        """Orders and weights of the trees of a fitted model.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one.
        tree : int, optional
            Number of a tree, or member of a mixture; by default their average is drawn.
        target : int, optional
            Which target; needed if there are several with trees of their own.
        **style
            As for `plot`.
        """
        fitted, _ = unwrap(model)
        trees, share = trees_of(fitted, target)
        if tree is not None and whole_number("tree", tree, 0) >= len(trees):
            raise ValueError(f"tree must be between 0 and {len(trees) - 1}, got {tree}")
        return cls(working_names(fitted), *arrange_bits(trees), share, tree).plot(**style)

    def plot(self, ax: Any = None, *, cell_kw: Style = None) -> Self:
        """Draw a cell per bit, the darker the more variance it carries.

        For one tree, columns are places in the order, and numbers the bits that stand there, 1 for
        the coarsest. For the average of trees, columns are the bits of each feature, and numbers
        their mean places in the orders.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        cell_kw : dict, optional
            Keyword arguments for the cells (`Axes.pcolormesh`).
        """
        values, numbers, xlabel = self._mean_cells() if self.tree is None else self._tree_cells()
        width = min(3.0 + 0.3 * values.shape[1], 12.0)
        ax = self._open(ax, (width, max(1.3 + 0.32 * len(self.names), 2.0)))
        shown = np.ma.masked_where(numbers == 0, values)
        colors = {"cmap": ramp(strongest=0.6), "vmin": 0.0, "vmax": float(values.max()) or 1.0}
        x = np.arange(values.shape[1] + 1) + 0.5
        draw_cells(ax, shown, "share of variance", cell_kw, x=x, **colors)
        if np.count_nonzero(numbers) <= MOST_TEXTS:
            text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
            for row, column in np.argwhere(numbers > 0).tolist():
                number, ink = f"{numbers[row, column]:.0f}", current_palette().ink
                ax.text(column + 1, row, number, color=ink, **text)
        list_names(ax, self.names)
        dress(ax, xlabel)
        return self

    def _tree_cells(self) -> tuple[Floats, Floats, str]:
        """Weights by place in the order of a tree (n_columns, n_places), and bits, 0 if none."""
        assert self.tree is not None
        weight, place = self.weight[self.tree], self.place[self.tree]
        n_used = int(place[weight > 0].max(initial=1))
        values = np.zeros((len(self.names), min(n_used, MOST_PLACES)))
        numbers = np.zeros_like(values)
        for column, depth in np.argwhere((place > 0) & (place <= values.shape[1])).tolist():
            at = place[column, depth] - 1
            values[column, at], numbers[column, at] = weight[column, depth], depth + 1
        rest = n_used - values.shape[1]
        more = f" ({rest} more not shown)" if rest else ""
        return values, numbers, f"place in the order of tree {self.tree}{more}"

    def _mean_cells(self) -> tuple[Floats, Floats, str]:
        """The average of the trees: weights (n_columns, n_depths) and mean places."""
        share = self.tree_weight[:, None, None]
        values, present = (share * self.weight).sum(axis=0), share * (self.place > 0)
        total = present.sum(axis=0)
        places = (present * self.place).sum(axis=0) / np.where(total > 0, total, 1.0)
        return values, places, "bit of the feature, coarse to fine; numbers: mean place"


def part_of_target(parts: Sequence[Any], model: Any, target: int | None) -> tuple[Any, int]:
    """The ensemble or forest of a target, and the number of the target in it.

    target: needed if there are several parts.
    """
    n_targets = model.target_mean_.size
    k = choose_target(target, n_targets) if target is not None or len(parts) > 1 else 0
    return (parts[0], k) if len(parts) == 1 else (parts[k], 0)


def trees_of(model: Any, target: int | None) -> tuple[Sequence[tuple[Quantiser, BitOrder]], Floats]:
    """Grids and orders of a model's trees, and the share of each."""
    if hasattr(model, "ensembles_"):
        ensemble, column = part_of_target(model.ensembles_, model, target)
        share = np.asarray(ensemble.calibrations[column].weight)
        return [(member.encoder, member.order) for member in ensemble.members], share
    forest = part_of_target(model.forests_, model, target)[0].model
    variance = np.array([order.prior_variance for order in forest.orders])
    if not variance.sum() > 0:
        variance = np.ones(variance.size)
    return list(zip(forest.encoders, forest.orders, strict=True)), variance / variance.sum()


def arrange_bits(trees: Sequence[tuple[Quantiser, BitOrder]]) -> tuple[Floats, Ints]:
    """Weights and places of bits, by tree, column and depth.

    Weights sum to 1 per tree, nugget not included; 0 if it has no variance.
    """
    width = max(int(encoder.precision_.max()) for encoder, _ in trees)
    shape = (len(trees), trees[0][0].n_working, width)
    weight, place = np.zeros(shape), np.zeros(shape, np.int64)
    for t, (encoder, order) in enumerate(trees):
        at = t, features_of(encoder)[order.key_bits], depths_of(encoder)[order.key_bits]
        drops = -np.diff(order.levels)
        weight[at] = drops / (drops.sum() or 1.0)
        place[at] = np.arange(1, order.n_levels + 1)
    return weight, place


def working_names(model: Any) -> tuple[str, ...]:
    """Names of the columns that a model works on: the feature, and its role if it has one."""
    names, layout = names_of(model), model.layout_
    if layout.plain:
        return names
    return tuple(
        names[j] if role == "value" else f"{names[j]}, {role}"
        for j, role in zip(layout.source.tolist(), layout.roles, strict=True)
    )
