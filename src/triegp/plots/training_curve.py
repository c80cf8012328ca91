"""The training curve: nll per row, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.metrics.forecasts import unwrap
from triegp.plots.canvas import Display, Style, dress, merge
from triegp.plots.palette import current_palette

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEW_LINES = 3  # lines that have a colour each
ROBUST = 0.98  # share of the values that the axis shows at least
WORST = 3.0  # how far above these it goes, in their range


@dataclass(eq=False)
class TrainingCurveDisplay(Display):
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

    @classmethod
    def from_estimator(cls, model: Any, **style: Any) -> Self:
        """The curve of the last fit, `model.training_curve_`.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one. Raises ValueError if it holds no curve.
        **style
            As for `plot`.
        """
        curve = unwrap(model)[0].training_curve_
        if curve is None:
            raise ValueError("model must hold a training curve, but none was recorded")
        return cls(curve.names, curve.step, curve.nll, curve.held_out).plot(**style)

    def plot(self, ax: Any = None, *, line_kw: Style = None, held_out_kw: Style = None) -> Self:
        """Draw all lines; up to three have colours of their own and are named.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        line_kw, held_out_kw : dict, optional
            Keyword arguments for the lines of training and of held-out rows (`Axes.plot`).
        """
        palette, ax = current_palette(), self._open(ax)
        few, alone = len(self.names) <= FEW_LINES, len(self.names) == 1
        colors = (palette.accent, palette.accent3, palette.ink)
        for k, name in enumerate(self.names):
            label: str | None = "training rows" if alone else name
            line: dict[str, Any] = {"color": colors[k % 3], "linewidth": 1.3}
            if not few:
                label = f"{len(self.names)} members" if k == 0 else None
                line = {"color": palette.accent, "linewidth": 0.9, "alpha": 0.5}
            if self.step[k].size == 1:
                line["marker"] = "o"
            ax.plot(self.step[k], self.nll[k], **merge(line_kw, label=label, **line))
        for k, (step, nll) in enumerate(self.held_out or ()):
            label = "held-out rows" if k == 0 else None
            line = {"color": palette.accent2, "marker": "o", "markersize": 4, "linewidth": 1.8}
            if not alone and few:
                line |= {"color": colors[k], "linestyle": (0, (2, 1))}
            ax.plot(step, nll, **merge(held_out_kw, label=label, **line))
        values = np.concatenate([*self.nll, *(nll for _, nll in self.held_out or ()), np.empty(0)])
        if values.size:  # single bad steps are left outside, which would hide all others
            low, high = float(values.min()), float(np.quantile(values, ROBUST))
            if values.max() > high + WORST * (high - low) > low:
                ax.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))
        dress(ax, "step", "nll per row", "upper right")
        return self
