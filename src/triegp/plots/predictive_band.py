"""The predictive band of a model with one feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, whole_number
from triegp.metrics.forecasts import choose_target, unwrap
from triegp.models.distribution import check_quantiles
from triegp.plots.canvas import (
    Display,
    Style,
    draw_bands,
    draw_points,
    dress,
    merge,
    tick_values,
)
from triegp.plots.features import (
    Feature,
    nameless_rows,
    names_of,
    read_feature,
    training_rows,
)
from triegp.plots.palette import current_palette

Floats = npt.NDArray[np.float64]

COVERAGES = (0.5, 0.9)
DAY_MICROSECONDS = 86_400e6


@dataclass(eq=False)
class PredictiveBandDisplay(Display):
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

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any = None,
        y: Any = None,
        *,
        n_grid: int = 400,
        margin: float = 0.0,
        n_samples: int = 0,
        latent: bool = False,
        target: int | None = None,
        random_state: Any = 0,
        **options: Any,
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
        **options
            `coverages`, as for `from_predictions`, and those of `plot`.
        """
        if unwrap(model)[0] is not model:
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
            points=None if y is None else _points(feature, y, k),
            samples=samples,
            name=names_of(model)[0],
            is_time=feature.kind == "time",
            **options,
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
        **style: Any,
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
        **style
            As for `plot`.
        """
        levels, at = np.sort(check_quantiles(coverages, "coverages")), float_array("x", x)
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
        arrays = at[order], distribution.mean()[order], levels, bands, data, drawn[order]
        return cls(*arrays, name, is_time).plot(**style)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kw: Style = None,
        band_kw: Style = None,
        point_kw: Style = None,
        sample_kw: Style = None,
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
        palette, ax = current_palette(), self._open(ax, (6.4, 3.8))
        if self.points.size:
            many = self.points.shape[0] > 1_000
            points: dict[str, Any] = {"color": palette.faint, "label": "data"}
            points |= {"markersize": 1.5 if many else 3.0, "alpha": 0.5 if many else 0.8}
            draw_points(ax, self.points[:, 0], self.points[:, 1], point_kw, **points)
        draw_bands(ax, self.x, self.coverages, list(self.bands.transpose(0, 2, 1)), band_kw)
        if self.samples.size:
            lines = merge(sample_kw, color=palette.accent2, linewidth=0.8, alpha=0.8)
            ax.plot(self.x, self.samples, **lines)[0].set_label("samples")
        line = merge(line_kw, color=palette.accent, linewidth=1.8, label="mean")
        ax.plot(self.x, self.mean, **line)
        ax.margins(x=0.01)
        dress(ax, self.name, "y", "best", 2)
        tick_values(ax.xaxis, "time" if self.is_time else "number")
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
    if feature.kind not in ("time", "duration"):
        return grid[:, None]
    unit = "datetime64[us]" if feature.kind == "time" else "timedelta64[us]"
    return (grid * DAY_MICROSECONDS).round().astype(unit)[:, None]


def _points(feature: Feature, y: Any, k: int) -> Floats:
    """Data points (n, 2) of one target."""
    observed = float_array("y", y)
    if observed.ndim == 2:
        observed = observed[:, k]
    if observed.shape != feature.values.shape:
        raise ValueError(f"y must have {feature.values.size} rows as X has, got {observed.shape}")
    return np.column_stack([feature.values, observed])
