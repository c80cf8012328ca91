"""Weights by bit: where the bits of each feature stand in the order of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.start import depths_of, features_of
from triegp.checks import whole_number
from triegp.encoding.quantiser import Quantiser
from triegp.plots.canvas import draw_cells, draw_colorbar, dress, merge, open_axes, ramp
from triegp.plots.features import names_of
from triegp.plots.forecasts import choose_target, unwrap
from triegp.plots.palette import current_palette
from triegp.tree.order import BitOrder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_PLACES = 40  # places of an order that are shown
MOST_TEXTS = 250  # cells that are numbered


@dataclass(eq=False)
class WeightsDisplay:
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
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        tree: int | None = None,
        target: int | None = None,
        ax: Axes | None = None,
        cell_kw: Mapping[str, Any] | None = None,
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
        ax, cell_kw
            As for `plot`.
        """
        own, _ = unwrap(model)
        pairs, share = trees_of(own, target)
        if tree is not None and whole_number("tree", tree, 0) >= len(pairs):
            raise ValueError(f"tree must be between 0 and {len(pairs) - 1}, got {tree}")
        weight, place = arrange_bits(pairs)
        return cls(working_names(own), weight, place, share, tree).plot(ax, cell_kw=cell_kw)

    def plot(self, ax: Axes | None = None, *, cell_kw: Mapping[str, Any] | None = None) -> Self:
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
        values, numbers, xlabel, form = self._average() if self.tree is None else self._one()
        width = min(3.0 + 0.3 * values.shape[1], 12.0)
        self.ax_ = open_axes(ax, (width, max(1.3 + 0.32 * len(self.names), 2.0)))
        x = np.arange(values.shape[1] + 1) + 0.5
        y = np.arange(len(self.names) + 1) - 0.5
        top = float(values.max()) or 1.0
        options = {"cmap": ramp(strongest=0.6), "vmin": 0.0, "vmax": top}
        shown = np.ma.masked_where(numbers == 0, values)
        found = draw_cells(self.ax_, x, y, shown, **merge(options, cell_kw))
        draw_colorbar(self.ax_, found, "share of variance")
        ink = current_palette().ink
        if np.count_nonzero(numbers) <= MOST_TEXTS:
            for row, column in np.argwhere(numbers > 0).tolist():
                text = format(numbers[row, column], form)
                self.ax_.text(
                    column + 1, row, text, ha="center", va="center", fontsize="small", color=ink
                )
        self.ax_.set_yticks(np.arange(len(self.names)), self.names)
        self.ax_.set_ylim(len(self.names) - 0.5, -0.5)
        self.ax_.tick_params(axis="y", length=0)
        dress(self.ax_, xlabel)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self

    def _one(self) -> tuple[Floats, Floats, str, str]:
        """One tree: weights (n_columns, n_places), bits at these places, 0 if none."""
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
        return values, numbers, f"place in the order of tree {self.tree}{more}", ".0f"

    def _average(self) -> tuple[Floats, Floats, str, str]:
        """The average of the trees: weights (n_columns, n_depths) and mean places."""
        share = self.tree_weight[:, None, None]
        values = (share * self.weight).sum(axis=0)
        there = share * (self.place > 0)
        total = there.sum(axis=0)
        places = (there * self.place).sum(axis=0) / np.where(total > 0, total, 1.0)
        return values, places, "bit of the feature, coarse to fine; numbers: mean place", ".0f"


def trees_of(model: Any, target: int | None) -> tuple[Sequence[tuple[Quantiser, BitOrder]], Floats]:
    """Grids and orders of a model's trees, and the share of each."""
    if hasattr(model, "ensembles_"):
        ensembles = model.ensembles_
        n_targets = model.target_mean_.size
        k = choose_target(target, n_targets) if target is not None or len(ensembles) > 1 else 0
        own, column = (ensembles[0], k) if len(ensembles) == 1 else (ensembles[k], 0)
        share = own.calibrations[column].weight
        return [(member.encoder, member.order) for member in own.members], np.asarray(share)
    forests, n_targets = model.forests_, model.target_mean_.size
    k = choose_target(target, n_targets) if target is not None or len(forests) > 1 else 0
    forest = forests[0 if len(forests) == 1 else k].model
    variance = np.array([order.prior_variance for order in forest.orders])
    share = (
        variance / variance.sum()
        if variance.sum() > 0
        else np.full(variance.size, 1.0 / variance.size)
    )
    return list(zip(forest.encoders, forest.orders, strict=True)), share


def arrange_bits(pairs: Sequence[tuple[Quantiser, BitOrder]]) -> tuple[Floats, Ints]:
    """Weights and places of bits, by tree, column and depth.

    Weights sum to 1 per tree, nugget not included; 0 if it has no variance.
    """
    width = max(int(encoder.precision_.max()) for encoder, _ in pairs)
    shape = (len(pairs), pairs[0][0].n_working, width)
    weight, place = np.zeros(shape), np.zeros(shape, np.int64)
    for t, (encoder, order) in enumerate(pairs):
        at = t, features_of(encoder)[order.key_bits], depths_of(encoder)[order.key_bits]
        own = -np.diff(order.levels)
        weight[at] = own / own.sum() if own.sum() > 0 else own
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
