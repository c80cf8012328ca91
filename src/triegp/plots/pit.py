"""The histogram of the probability integral transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import whole_number
from triegp.plots.canvas import draw_expected, draw_legend, draw_reference, dress, merge, open_axes
from triegp.plots.forecasts import ForecastDisplay, binomial_band, make_forecast, pit_of
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]


@dataclass(eq=False)
class PitDisplay(ForecastDisplay):
    """Histogram of the PIT, P(Y <= y) at each row, which is uniform if the model is calibrated.

    A hill says that distributions are too wide, a bowl that they are too narrow, a slope that they
    are biased. Use `from_estimator`, `from_loo` or `from_predictions`.

    Attributes
    ----------
    pit : float64 (m,)
        The transform of each row.
    edges : float64 (n_bins + 1,)
        Edges of the bins.
    density : float64 (n_bins,)
        Share of the rows in each bin times n_bins; 1 is uniform.
    low, high : float
        Binomial band: where the density of a bin lies with a probability of 95 % if the model is
        calibrated and rows are independent.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.plots import PitDisplay
    >>> y = np.random.default_rng(0).standard_normal(1_000)
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 1_000)), np.ones((1, 1_000)))
    >>> display = PitDisplay.from_predictions(y, normal, n_bins=10)
    >>> bool((display.density > display.low).all())
    True
    """

    pit: Floats
    edges: Floats
    density: Floats
    low: float
    high: float
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Any,
        *,
        n_bins: int = 20,
        target: int | None = None,
        ax: Axes | None = None,
        bar_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """PIT histogram of predictive distributions. O(K m) for m rows of K components.

        Parameters
        ----------
        y : array-like (m,) or (m, n_targets)
            Targets. Rows with NaN are left out.
        distribution : PredictiveDistribution or TransformedDistribution, or a list of them
            What was predicted.
        n_bins : int, default=20
            Number of bins.
        target : int, optional
            Which target; needed if there are several.
        ax, bar_kw, band_kw
            As for `plot`.
        """
        n_bins = whole_number("n_bins", n_bins)
        pit = pit_of(make_forecast(y, distribution, target))
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        density = np.histogram(pit, edges)[0] * (n_bins / pit.size)
        low, high = (float(n_bins * part) for part in binomial_band(pit.size, 1.0 / n_bins))
        return cls(pit, edges, density, low, high).plot(ax, bar_kw=bar_kw, band_kw=band_kw)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        bar_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw the histogram and the band around the uniform density.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        bar_kw, band_kw : dict, optional
            Keyword arguments for the bars (`Axes.bar`) and the band (`Axes.fill_between`).
        """
        palette, self.ax_ = current_palette(), open_axes(ax)
        bars = {"color": palette.accent, "alpha": 0.45, "linewidth": 0.0}
        width = np.diff(self.edges)
        self.ax_.bar(self.edges[:-1], self.density, width, align="edge", **merge(bars, bar_kw))
        self.ax_.stairs(self.density, self.edges, color=palette.accent, linewidth=1.2)
        label = "95 % if calibrated"
        draw_expected(self.ax_, [0, 1], self.low, self.high, label, **(band_kw or {}))
        draw_reference(self.ax_, [0, 1], [1, 1], zorder=2.1)
        top = max(1.3 * self.high, 1.1 * float(self.density.max()))
        self.ax_.set(xlim=(0, 1), ylim=(0, top))
        dress(self.ax_, "PIT, P(Y ≤ y)", "density")
        draw_legend(self.ax_, loc="upper right")
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self
