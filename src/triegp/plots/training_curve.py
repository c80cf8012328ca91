"""The training curve: nll per row, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.plots.canvas import draw_legend, dress, merge, open_axes
from triegp.plots.forecasts import unwrap
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEW_LINES = 3  # lines that have a colour each
ROBUST = 0.98  # share of the values that the axis shows at least
WORST = 3.0  # how far above these it goes, in their range


@dataclass(eq=False)
class TrainingCurveDisplay:
    """Nll per row during training; lower is better.

    One line per target of a TrieGPRegressor, per member of a BinaryTreeGPRegressor. Use
    `from_estimator`.

    Attributes
    ----------
    names : tuple of str
        Names of the lines.
    step : tuple of int64 (k,)
        Steps of the optimiser, one array per line.
    nll : tuple of float64 (k,)
        Nll per training row, in standardised units of the target.
    held_out : tuple of (int64 (j,), float64 (j,)), or None
        Steps and nll per held-out row, one pair per line.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import TrainingCurveDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 1))
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, np.sin(6 * X[:, 0]))
    >>> display = TrainingCurveDisplay.from_estimator(model)
    >>> bool(display.nll[0][-1] < display.nll[0][0])
    True
    """

    names: tuple[str, ...]
    step: tuple[Ints, ...]
    nll: tuple[Floats, ...]
    held_out: tuple[tuple[Ints, Floats], ...] | None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        ax: Axes | None = None,
        line_kw: Mapping[str, Any] | None = None,
        held_out_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """The curve of the last fit, `model.training_curve_`.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one. Raises ValueError if it holds no curve.
        ax, line_kw, held_out_kw
            As for `plot`.
        """
        own, _ = unwrap(model)
        curve = own.training_curve_
        if curve is None:
            raise ValueError("model must hold a training curve, but none was recorded")
        display = cls(curve.names, curve.step, curve.nll, curve.held_out)
        return display.plot(ax, line_kw=line_kw, held_out_kw=held_out_kw)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        line_kw: Mapping[str, Any] | None = None,
        held_out_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw all lines; up to three have colours of their own and are named.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        line_kw, held_out_kw : dict, optional
            Keyword arguments for the lines of training and of held-out rows (`Axes.plot`).
        """
        palette, self.ax_ = current_palette(), open_axes(ax)
        few = len(self.names) <= FEW_LINES
        alone = len(self.names) == 1
        colors = (palette.accent, palette.accent3, palette.ink)
        for k, name in enumerate(self.names):
            line: dict[str, Any] = {"color": colors[k] if few else palette.accent}
            line |= {"linewidth": 1.3 if few else 0.9, "alpha": 1.0 if few else 0.5}
            label: str | None = "training rows" if alone else name
            if not few:
                label = f"{len(self.names)} members" if k == 0 else None
            if self.step[k].size == 1:
                line["marker"] = "o"
            self.ax_.plot(self.step[k], self.nll[k], **merge({**line, "label": label}, line_kw))
        for k, (step, nll) in enumerate(self.held_out or ()):
            line = {"color": palette.accent2, "marker": "o", "markersize": 4, "linewidth": 1.8}
            line["label"] = "held-out rows" if k == 0 else None
            if not alone and few:
                line["color"], line["linestyle"] = colors[k], (0, (2, 1))
            self.ax_.plot(step, nll, **merge(line, held_out_kw))
        self._limit()
        dress(self.ax_, "step", "nll per row")
        draw_legend(self.ax_, loc="upper right")
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self

    def _limit(self) -> None:
        """Leave single bad steps outside the axis, which would hide all others."""
        every = [*self.nll, *(nll for _, nll in self.held_out or ())]
        values = np.concatenate([*every, np.empty(0)])
        if not values.size:
            return
        low, high = float(values.min()), float(np.quantile(values, ROBUST))
        if values.max() > high + WORST * (high - low) > low:
            self.ax_.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))
