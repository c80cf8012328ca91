"""Importances by feature, and by feature and scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import one_of, whole_number
from triegp.plots.canvas import (
    draw_cells,
    draw_colorbar,
    draw_legend,
    dress,
    merge,
    open_axes,
    ramp,
)
from triegp.plots.features import names_of
from triegp.plots.forecasts import choose_target, unwrap
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

SHARES = ("explained", "prior")
KINDS = ("bars", "heatmap")
SMOOTH = "smooth"
FAINTEST = 0.25  # opacity of the finest bit in a bar
NEGLIGIBLE = 1e-3  # bits that add less than this in all features are not shown


@dataclass(eq=False)
class ImportanceDisplay:
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
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        share: str = "explained",
        max_features: int = 20,
        target: int | None = None,
        kind: str = "bars",
        ax: Axes | None = None,
        bar_kw: Mapping[str, Any] | None = None,
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
        kind, ax, bar_kw
            As for `plot`.
        """
        one_of("share", share, SHARES)
        most = whole_number("max_features", max_features)
        own, _ = unwrap(model)
        found = own.importances_
        k = choose_target(target, 1 if own.one_dimensional_ else len(found))
        part = found if own.one_dimensional_ else found[k]
        total, by_bit, smooth = (getattr(part, share + end) for end in ("", "_by_bit", "_smooth"))
        order = np.argsort(-total, kind="stable")[:most]
        names = names_of(own)
        display = cls(
            tuple(names[j] for j in order),
            total[order],
            by_bit[order],
            smooth[order],
            share,
            total.size - order.size,
        )
        return display.plot(ax, kind=kind, bar_kw=bar_kw)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: str = "bars",
        bar_kw: Mapping[str, Any] | None = None,
    ) -> Self:
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
        height = 1.1 + 0.28 * len(self.names)
        self.ax_ = open_axes(ax, (5.8, max(height, 2.2)))
        if kind == "bars":
            self._plot_bars(bar_kw)
        else:
            self._plot_cells(bar_kw)
        self.ax_.set_yticks(np.arange(len(self.names)), self.names)
        self.ax_.set_ylim(len(self.names) - 0.5, -0.5)
        self.ax_.tick_params(axis="y", length=0)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self

    def _shown_bits(self) -> Floats:
        """By bit, without the finest bits, which add next to nothing, (k, n)."""
        matter = np.flatnonzero((np.abs(self.by_bit) > NEGLIGIBLE).any(axis=0))
        return self.by_bit[:, : int(matter[-1]) + 1 if matter.size else 1]

    def _plot_bars(self, bar_kw: Mapping[str, Any] | None) -> None:
        palette, y, bits = current_palette(), np.arange(len(self.names)), self._shown_bits()
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
            self.ax_.barh(y, values, 0.7, left=ends[side, y], **merge(bars, bar_kw))
            ends[side, y] += values
        if (ends[0] < -NEGLIGIBLE).any():
            marks: dict[str, Any] = {
                "color": palette.ink,
                "marker": "|",
                "linestyle": "none",
                "markersize": 12,
            }
            self.ax_.plot(self.total, y, label="sum", **marks)
        self.ax_.axvline(0.0, color=palette.ink, linewidth=0.8)
        dress(self.ax_, f"share of the {self._variance()}{self._hidden()}")
        self.ax_.spines["left"].set_visible(False)
        draw_legend(self.ax_, loc="lower right")

    def _plot_cells(self, bar_kw: Mapping[str, Any] | None) -> None:
        bits = self._shown_bits()
        values = np.column_stack([self.smooth, bits]) if self.smooth.any() else bits
        signed = bool(values.min() < -0.01)
        top = float(np.abs(values).max())
        options = {"cmap": ramp(signed=signed), "vmin": -top if signed else 0.0, "vmax": top}
        x = np.arange(values.shape[1] + 1) - 0.5
        y = np.arange(len(self.names) + 1) - 0.5
        found = draw_cells(
            self.ax_, x, y, values if signed else values.clip(0.0), **merge(options, bar_kw)
        )
        draw_colorbar(self.ax_, found, f"share of the {self._variance()}")
        first = [SMOOTH] if self.smooth.any() else []
        step = 1 if bits.shape[1] <= 10 else 2
        labels = [*first, *(str(d + 1) if d % step == 0 else "" for d in range(bits.shape[1]))]
        self.ax_.set_xticks(np.arange(values.shape[1]), labels)
        dress(self.ax_, f"bit, coarse to fine{self._hidden()}")

    def _variance(self) -> str:
        return "explained variance" if self.share == "explained" else "prior variance"

    def _hidden(self) -> str:
        return f" ({self.n_hidden} features not shown)" if self.n_hidden else ""
