"""Importances by feature, and by feature and scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import one_of, whole_number
from triegp.metrics.forecasts import choose_target, unwrap
from triegp.plots.canvas import Display, Style, draw_cells, dress, list_names, merge, ramp
from triegp.plots.features import names_of
from triegp.plots.palette import current_palette

Floats = npt.NDArray[np.float64]

SHARES = ("explained", "prior")
KINDS = ("bars", "heatmap")
FAINTEST = 0.25  # opacity of the finest bit in a bar
NEGLIGIBLE = 1e-3  # bits that add less than this in all features are not shown


@dataclass(eq=False)
class ImportanceDisplay(Display):
    """Shares of variance by feature, and by the scale at which a feature matters.

    A feature is cut to bits. Its first bit is coarse, one half of its range against the other; each
    further bit halves the cells. The smooth part has no bits. Use `from_estimator`.

    Attributes
    ----------
    names : tuple of str
        Features, the most important first.
    total : float64 (k,)
        Share of each; those of all features sum to 1. Explained shares can be slightly negative.
    by_bit : float64 (k, n_depths)
        What the trees contribute to it, by bit, coarse to fine.
    smooth : float64 (k,)
        What the smooth part contributes.
    share : {"explained", "prior"}
        Whether these are shares of the posterior mean's variance over the training rows, or of the
        prior variance.
    n_hidden : int
        Number of features that are not shown.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import ImportanceDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 3))
    >>> y = np.sin(6 * X[:, 2]) + 0.1 * rng.standard_normal(300)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> ImportanceDisplay.from_estimator(model).names[0]
    'x2'
    """

    names: tuple[str, ...]
    total: Floats
    by_bit: Floats
    smooth: Floats
    share: str
    n_hidden: int

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        share: str = "explained",
        max_features: int = 20,
        target: int | None = None,
        **style: Any,
    ) -> Self:
        """Importances of a fitted model. O(n) per tree.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one; features are then those of the last step.
        share : {"explained", "prior"}, default="explained"
            Shares of the variance that the model explains, or of its prior variance.
        max_features : int, default=20
            Number of features to show.
        target : int, optional
            Which target; needed if there are several.
        **style
            As for `plot`.
        """
        one_of("share", share, SHARES)
        most = whole_number("max_features", max_features)
        fitted, _ = unwrap(model)
        importances = fitted.importances_
        if fitted.one_dimensional_:
            importances = [importances]
        chosen = importances[choose_target(target, len(importances))]
        total, by_bit, smooth = (getattr(chosen, share + end) for end in ("", "_by_bit", "_smooth"))
        order = np.argsort(-total, kind="stable")[:most]
        names = tuple(names_of(fitted)[j] for j in order)
        arrays = total[order], by_bit[order], smooth[order]
        return cls(names, *arrays, share, total.size - order.size).plot(**style)

    def plot(self, ax: Any = None, *, kind: str = "bars", bar_kw: Style = None) -> Self:
        """Draw a bar per feature, or a heat map by feature and bit.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        kind : {"bars", "heatmap"}, default="bars"
            Bars are stacked: the smooth part, then bits, coarse to fine, ever fainter; a mark shows
            the sum, if parts are negative. A heat map has the smooth part in its first column.
        bar_kw : dict, optional
            Keyword arguments for the bars (`Axes.barh`) or the heat map (`Axes.pcolormesh`).
        """
        one_of("kind", kind, KINDS)
        ax = self._open(ax, (5.8, max(1.1 + 0.28 * len(self.names), 2.2)))
        # Without the finest bits, which add next to nothing.
        matter = np.flatnonzero((np.abs(self.by_bit) > NEGLIGIBLE).any(axis=0))
        bits = self.by_bit[:, : int(matter[-1]) + 1 if matter.size else 1]
        variance = f"share of the {self.share} variance"
        hidden = f" ({self.n_hidden} features not shown)" if self.n_hidden else ""
        if kind == "bars":
            self._plot_bars(ax, bits, bar_kw)
            dress(ax, variance + hidden, legend="lower right")
            ax.spines["left"].set_visible(False)
        else:
            self._plot_cells(ax, bits, variance, bar_kw)
            dress(ax, f"bit, coarse to fine{hidden}")
        list_names(ax, self.names)
        return self

    def _plot_bars(self, ax: Any, bits: Floats, bar_kw: Style) -> None:
        palette, y = current_palette(), np.arange(len(self.names))
        parts: list[tuple[Floats, str, float, str | None]] = []
        if self.smooth.any():
            parts.append((self.smooth, palette.accent2, 1.0, "smooth part"))
        alphas = np.geomspace(1.0, FAINTEST, bits.shape[1])
        for depth, alpha in enumerate(alphas.tolist()):
            label = {0: "coarsest bit", bits.shape[1] - 1: f"bit {bits.shape[1]}"}.get(depth)
            parts.append((bits[:, depth], palette.accent, alpha, label))
        ends = np.zeros((2, y.size))  # of what lies left and right of 0
        for values, color, alpha, label in parts:
            side = (values > 0).astype(np.int64)
            bars = {"color": color, "alpha": alpha, "linewidth": 0.0, "label": label}
            ax.barh(y, values, 0.7, left=ends[side, y], **merge(bar_kw, **bars))
            ends[side, y] += values
        if (ends[0] < -NEGLIGIBLE).any():
            marks: dict[str, Any] = {"marker": "|", "linestyle": "none", "markersize": 12}
            ax.plot(self.total, y, label="sum", color=palette.ink, **marks)
        ax.axvline(0.0, color=palette.ink, linewidth=0.8)

    def _plot_cells(self, ax: Any, bits: Floats, variance: str, bar_kw: Style) -> None:
        first = ["smooth"] if self.smooth.any() else []
        values = np.column_stack([self.smooth, bits]) if first else bits
        signed, top = bool(values.min() < -0.01), float(np.abs(values).max())
        colors = {"cmap": ramp(signed=signed), "vmin": -top if signed else 0.0, "vmax": top}
        draw_cells(ax, values if signed else values.clip(0.0), variance, bar_kw, **colors)
        step = 1 if bits.shape[1] <= 10 else 2
        labels = [*first, *(str(d + 1) if d % step == 0 else "" for d in range(bits.shape[1]))]
        ax.set_xticks(np.arange(values.shape[1]), labels)
