"""The predictive band of a model with one feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, whole_number
from triegp.plots.calibration import check_coverages
from triegp.plots.canvas import BAND_ALPHAS, draw_legend, dress, merge, open_axes
from triegp.plots.features import (
    Feature,
    nameless_rows,
    names_of,
    read_feature,
    tick_values,
    training_rows,
)
from triegp.plots.forecasts import choose_target, unwrap
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

COVERAGES = (0.5, 0.9)


@dataclass(eq=False)
class PredictiveBandDisplay:
    """Mean and central intervals along one feature, with data points and joint samples.

    Use `from_estimator` for models of one feature, `from_predictions` for any line of rows.

    Attributes
    ----------
    x : float64 (k,)
        Values of the feature, ascending; days since 1970 if these are times.
    mean : float64 (k,)
        Predicted mean.
    coverages : float64 (c,)
        Coverages of the bands, ascending.
    bands : float64 (c, k, 2)
        Lower and upper end of each band.
    points : float64 (n, 2)
        Data: feature and target.
    samples : float64 (k, n_samples)
        Joint samples of the function.
    name : str
        Name of the feature.
    is_time : bool
        Whether x are times.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import PredictiveBandDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 1))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(200)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> display = PredictiveBandDisplay.from_estimator(model, n_samples=3)
    >>> display.mean.shape, display.bands.shape, display.samples.shape, display.points.shape
    ((400,), (2, 400, 2), (400, 3), (200, 2))
    """

    x: Floats
    mean: Floats
    coverages: Floats
    bands: Floats
    points: Floats
    samples: Floats
    name: str = "x"
    is_time: bool = False
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any = None,
        y: Any = None,
        *,
        coverages: Any = COVERAGES,
        n_grid: int = 400,
        margin: float = 0.0,
        n_samples: int = 0,
        latent: bool = False,
        target: int | None = None,
        random_state: Any = 0,
        ax: Axes | None = None,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
        point_kw: Mapping[str, Any] | None = None,
        sample_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Predict an even grid over the range of the only feature.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor of one feature, numbers or times.
        X : array-like or data frame (n, 1), optional
            Rows that give the range; the training rows by default, if the model keeps them.
        y : array-like (n,) or (n, n_targets), optional
            Targets of these rows, drawn as points. Targets of the training rows by default, if X is
            not given.
        coverages : array-like (c,), default=(0.5, 0.9)
            Coverages of the bands, strictly between 0 and 1.
        n_grid : int, default=400
            Number of values of the feature.
        margin : float, default=0.0
            How far the grid goes beyond the range, in shares of the range.
        n_samples : int, default=0
            Number of joint samples of the function. One solve each for TrieGPRegressor.
        latent : bool, default=False
            Whether bands describe the function instead of a new observation, which includes noise.
        target : int, optional
            Which target; needed if there are several.
        random_state : int, RandomState, Generator or None, default=0
            Source of random numbers of the samples.
        ax, line_kw, band_kw, point_kw, sample_kw
            As for `plot`.
        """
        own, _ = unwrap(model)
        if own is not model:
            raise ValueError("model must be an estimator, not a pipeline: see from_predictions")
        if model.n_features_in_ != 1:
            raise ValueError(
                f"model must have one feature, got {model.n_features_in_}: use "
                "PartialEffectDisplay, or from_predictions"
            )
        k = choose_target(target, model.target_mean_.size)
        if X is None:
            if y is not None:
                raise ValueError("y must come with X")
            X, y = training_rows(model), model.rows_.y
        feature = read_feature(X, 0, model)
        grid = even_grid(feature, whole_number("n_grid", n_grid, 2), float(margin))
        rows = grid_rows(feature, grid)
        with nameless_rows():
            distribution = model.predict_distribution(rows, latent=latent)
            samples = None
            if whole_number("n_samples", n_samples, 0):
                samples = model.sample_y(rows, n_samples, random_state, latent=True)
        if not model.one_dimensional_:
            distribution = distribution[k]
            samples = None if samples is None else samples[:, k]
        return cls.from_predictions(
            grid,
            distribution,
            points=_points(feature, y, k),
            samples=samples,
            coverages=coverages,
            name=names_of(model)[0],
            is_time=feature.kind == "time",
            ax=ax,
            line_kw=line_kw,
            band_kw=band_kw,
            point_kw=point_kw,
            sample_kw=sample_kw,
        )

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        distribution: Any,
        *,
        points: Any = None,
        samples: Any = None,
        coverages: Any = COVERAGES,
        name: str = "x",
        is_time: bool = False,
        ax: Axes | None = None,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
        point_kw: Mapping[str, Any] | None = None,
        sample_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw predictive distributions along a line of rows.

        Parameters
        ----------
        x : array-like (k,)
            Position of each row on the line, in any order.
        distribution : PredictiveDistribution or TransformedDistribution
            What was predicted at these rows.
        points : array-like (n, 2), optional
            Data: position and target.
        samples : array-like (k, n_samples), optional
            Joint samples at these rows.
        coverages : array-like (c,), default=(0.5, 0.9)
            Coverages of the bands, strictly between 0 and 1.
        name : str, default="x"
            Name of the line.
        is_time : bool, default=False
            Whether x are times, in days since 1970.
        ax, line_kw, band_kw, point_kw, sample_kw
            As for `plot`.
        """
        levels = check_coverages("coverages", coverages)
        at = float_array("x", x)
        if at.shape != (distribution.n_rows,):
            raise ValueError(f"x must have shape ({distribution.n_rows},), got {at.shape}")
        drawn = np.empty((at.size, 0)) if samples is None else float_array("samples", samples)
        if drawn.ndim != 2 or drawn.shape[0] != at.size:
            raise ValueError(f"samples must have shape ({at.size}, k), got {drawn.shape}")
        data = np.empty((0, 2)) if points is None else float_array("points", points)
        if data.ndim != 2 or data.shape[1] != 2:
            raise ValueError(f"points must have shape (n, 2), got {data.shape}")
        order = np.argsort(at, kind="stable")
        bands = np.stack([distribution.interval(level)[order] for level in levels.tolist()])
        mean = distribution.mean()[order]
        display = cls(at[order], mean, levels, bands, data, drawn[order], name, is_time)
        return display.plot(
            ax, line_kw=line_kw, band_kw=band_kw, point_kw=point_kw, sample_kw=sample_kw
        )

    def plot(
        self,
        ax: Axes | None = None,
        *,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
        point_kw: Mapping[str, Any] | None = None,
        sample_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw bands, mean, samples and data points.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        line_kw, band_kw, point_kw, sample_kw : dict, optional
            Keyword arguments for the mean (`Axes.plot`), bands (`Axes.fill_between`), data points
            and samples (`Axes.plot`).
        """
        palette, self.ax_ = current_palette(), open_axes(ax, (6.4, 3.8))
        if self.points.size:
            many = self.points.shape[0] > 1_000
            points: dict[str, Any] = {"color": palette.faint, "marker": "o", "linestyle": "none"}
            points |= {"markersize": 1.5 if many else 3.0, "alpha": 0.5 if many else 0.8}
            points |= {"markeredgewidth": 0.0, "label": "data"}
            self.ax_.plot(*self.points.T, **merge(points, point_kw))
        alphas = np.interp(
            np.arange(self.coverages.size), [0, max(self.coverages.size - 1, 1)], BAND_ALPHAS
        )
        for level, (low, high), alpha in zip(
            self.coverages.tolist(), self.bands.transpose(0, 2, 1), alphas.tolist(), strict=True
        ):
            band = {"color": palette.band, "alpha": alpha, "linewidth": 0.0, "zorder": 1.5}
            band["label"] = f"{100 * level:g} %"
            self.ax_.fill_between(self.x, low, high, **merge(band, band_kw))
        if self.samples.size:
            lines = {"color": palette.accent2, "linewidth": 0.8, "alpha": 0.8}
            found = self.ax_.plot(self.x, self.samples, **merge(lines, sample_kw))
            found[0].set_label("samples")
        line = {"color": palette.accent, "linewidth": 1.8, "label": "mean"}
        self.ax_.plot(self.x, self.mean, **merge(line, line_kw))
        self.ax_.margins(x=0.01)
        dress(self.ax_, self.name, "y")
        if self.is_time:
            tick_values(self.ax_.xaxis, "time")
        draw_legend(self.ax_, loc="best", ncols=2)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self


def even_grid(feature: Feature, n_grid: int, margin: float) -> Floats:
    """Even steps over the range of a feature and beyond, (n_grid,)."""
    values = feature.values[~np.isnan(feature.values)]
    if feature.listed or not values.size:
        raise ValueError(
            f"the feature must be a number or a time, got a {feature.kind} column: use "
            "PartialEffectDisplay"
        )
    low, high = float(values.min()), float(values.max())
    beyond = margin * (high - low)
    return np.linspace(low - beyond, high + beyond, n_grid)


def grid_rows(feature: Feature, grid: Floats) -> Any:
    """Rows (k, 1) of the only feature, as the estimators read them."""
    if feature.kind == "time":
        return (grid * 86_400e6).round().astype("datetime64[us]")[:, None]
    if feature.kind == "duration":
        return (grid * 86_400e6).round().astype("timedelta64[us]")[:, None]
    return grid[:, None]


def _points(feature: Feature, y: Any, k: int) -> Floats | None:
    """Data points (n, 2) of one target; None if there is no y."""
    if y is None:
        return None
    observed = float_array("y", y)
    if observed.ndim == 2:
        observed = observed[:, k]
    if observed.shape != feature.values.shape:
        raise ValueError(f"y must have {feature.values.size} rows as X has, got {observed.shape}")
    return np.column_stack([feature.values, observed])
