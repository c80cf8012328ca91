"""Mean effect of one or two features, with bands from joint draws of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from triegp.checks import boolean, random_generator, whole_number
from triegp.plots.calibration import check_coverages
from triegp.plots.canvas import (
    BAND_ALPHAS,
    draw_cells,
    draw_colorbar,
    draw_legend,
    dress,
    merge,
    open_axes,
    open_pair,
    ramp,
)
from triegp.plots.coverage import set_labels
from triegp.plots.features import (
    LISTED,
    nameless_rows,
    read_feature,
    replace_values,
    tick_values,
    training_rows,
)
from triegp.plots.forecasts import choose_target, unwrap
from triegp.plots.grids import cell_edges, choose_values, deciles_of
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

COVERAGES = (0.5, 0.9)
N_GRID = {1: 24, 2: 10}  # values per feature, by the number of features
N_ROWS = {1: 50, 2: 20}  # rows that are averaged


@dataclass(eq=False)
class PartialEffectDisplay:
    """Mean effect of one or two features: the function, averaged over rows, by their values.

    The effect at v is the mean over rows of f(row with the feature set to v). Its deviation needs
    the posterior covariance of all these values of f. It is estimated from joint draws of f, each
    averaged over the rows. So bands are those of the effect, not of single predictions. Use
    `from_estimator`.

    Attributes
    ----------
    names, kinds : tuple of str
        Names and kinds of the features.
    grid : tuple of float64 (g,)
        Values of each feature: numbers, days since 1970 of times, or 0, 1, ... for categories.
    labels : tuple of list of str
        The same in words.
    effect : float64 (g,) or (g, g2)
        Posterior mean of the effect, in units of y.
    std : float64 (g,) or (g, g2)
        Its posterior standard deviation, up to the Monte Carlo error of the draws: about
        1 / sqrt(2 n_draws) of it.
    draws : float64 (g, n_draws) or (g, g2, n_draws)
        The draws.
    deciles : tuple of float64 (9,)
        Deciles of each feature in X; empty for categories.
    centred : bool
        Whether the mean over the grid is subtracted, from the effect and from each draw.
    coverages : float64 (c,)
        Coverages of the bands that `plot` draws: effect +- z std, as the posterior is Gaussian.
        That of a transformed target is not: its bands are quantiles of the draws.
    transformed : bool
        Whether the target is transformed.
    ax_, figure_
        Axes and figure of the last plot; for two features, `ax_` is a pair of axes.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import PartialEffectDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 2))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(300)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> display = PartialEffectDisplay.from_estimator(model, None, 0)  # with its training rows
    >>> bool(display.effect[-1] - display.effect[0] > 0.6)
    True

    Notes
    -----
    A time is set as a whole, so that its effect mixes season, day of the week and hour;
    `model.report` shows them apart.

    g n_rows n_draws numbers are drawn by `sample_y`. A draw is a solve for TrieGPRegressor: with
    10,000 training rows and the defaults, one effect takes about 7 seconds of CPU time. For
    BinaryTreeGPRegressor it takes less than one.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    grid: tuple[Floats, ...]
    labels: tuple[list[str], ...]
    effect: Floats
    std: Floats
    draws: Floats
    deciles: tuple[Floats, ...]
    centred: bool
    coverages: Floats
    transformed: bool
    ax_: Any = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        features: int | str | Sequence[int | str],
        *,
        n_grid: int | None = None,
        n_rows: int | None = None,
        n_draws: int = 50,
        centred: bool = False,
        coverages: Any = COVERAGES,
        target: int | None = None,
        random_state: Any = 0,
        ax: Any = None,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Average the function over rows, with one or two features set to values of a grid.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one.
        X : array-like or data frame (n, n_features), or None
            Rows to average over, and values of the features. None: the training rows, if the model
            keeps them and all their columns are numbers.
        features : int or str, or two of them
            Numbers or names of columns of X.
        n_grid : int, optional
            Largest number of values per feature, 24 by default and 10 for each of two features:
            quantiles of numbers and times between 1 and 99 %, the most frequent categories. Missing
            values of categories are a category; those of numbers are not in the grid.
        n_rows : int, optional
            Number of rows, drawn from X, 50 by default and 20 for two features.
        n_draws : int, default=50
            Number of joint draws of the function.
        centred : bool, default=False
            Whether to subtract the mean over the grid, so that bands do not show what is uncertain
            about the level.
        coverages : array-like (c,), default=(0.5, 0.9)
            Coverages of the bands.
        target : int, optional
            Which target; needed if there are several.
        random_state : int, RandomState, Generator or None, default=0
            Source of random numbers, for rows and draws.
        ax, line_kw, band_kw
            As for `plot`.
        """
        listed = [features] if isinstance(features, str) or not np.iterable(features) else features
        chosen = list(listed)
        if len(chosen) not in (1, 2):
            raise ValueError(f"features must be one or two, got {len(chosen)}")
        levels, centred = check_coverages("coverages", coverages), boolean("centred", centred)
        own, _ = unwrap(model)
        target = choose_target(target, own.target_mean_.size)
        if X is None:
            if own is not model:
                raise ValueError("X must be given for a pipeline")
            X = training_rows(model)
        read = [read_feature(X, one, own if own is model else None) for one in chosen]
        if len({one.index for one in read}) < len(read):
            raise ValueError(f"features must be two different ones, got {features}")
        rng = random_generator(random_state)
        size = read[0].values.size
        n_grid = N_GRID[len(read)] if n_grid is None else whole_number("n_grid", n_grid)
        n_rows = N_ROWS[len(read)] if n_rows is None else whole_number("n_rows", n_rows)
        rows = np.sort(rng.choice(size, min(n_rows, size), replace=False))
        sources = [choose_values(one, n_grid) for one in read]
        shape = tuple(source.size for source in sources)
        places = np.meshgrid(*sources, rows, indexing="ij")
        replaced = {one.index: at.ravel() for one, at in zip(read, places[:-1], strict=True)}
        own, table = unwrap(model, replace_values(X, places[-1].ravel(), replaced))
        with nameless_rows():
            mean = own.predict(table, latent=True)
            n_draws = whole_number("n_draws", n_draws, 2)
            drawn = own.sample_y(table, n_draws, rng, latent=True)
        if not own.one_dimensional_:
            mean, drawn = mean[:, target], drawn[:, target]
        effect = np.asarray(mean).reshape(*shape, rows.size).mean(axis=-1)
        draws = np.asarray(drawn).reshape(*shape, rows.size, n_draws).mean(axis=-2)
        if centred:
            effect = effect - effect.mean()
            draws = draws - draws.mean(axis=tuple(range(len(shape))))
        std = draws.std(axis=-1, ddof=1)
        grids = [
            np.arange(source.size, dtype=np.float64) if one.listed else one.values[source]
            for one, source in zip(read, sources, strict=True)
        ]
        labels = [
            [one.label(value) for value in one.values[source].tolist()]
            for one, source in zip(read, sources, strict=True)
        ]
        names = own.target_transform_
        transform = names[target] if isinstance(names, list) else names
        display = cls(
            tuple(one.name for one in read),
            tuple(one.kind for one in read),
            tuple(grids),
            tuple(labels),
            effect,
            std,
            draws,
            tuple(map(deciles_of, read)),
            centred,
            levels,
            transform != "identity",
        )
        return display.plot(ax, line_kw=line_kw, band_kw=band_kw)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw the effect and its bands; for two features, heat maps of effect and deviation.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; two axes for two features. By default in a new figure.
        line_kw, band_kw : dict, optional
            Keyword arguments for the effect (`Axes.plot`) and the bands (`Axes.fill_between`). For
            two features, for the heat maps of the effect and of the deviation
            (`Axes.pcolormesh`).
        """
        if len(self.names) == 2:
            return self._plot_pair(ax, line_kw, band_kw)
        self.ax_ = open_axes(ax)
        marked = self._is_marked(0)
        if marked:
            self._plot_marks(line_kw, band_kw)
        else:
            self._plot_line(line_kw, band_kw)
        dress(self.ax_, self.names[0], "centred mean effect" if self.centred else "mean effect")
        if marked:
            set_labels(self.ax_, np.arange(self.grid[0].size), self.labels[0])
        else:
            tick_values(self.ax_.xaxis, self.kinds[0])
        draw_legend(self.ax_, loc="best")
        self.figure_ = self.ax_.figure
        return self

    def _bands(self) -> list[tuple[str, tuple[Floats, Floats], float]]:
        """Label, ends (g,) and opacity of each band, the widest first."""
        last = max(self.coverages.size - 1, 1)
        alphas = np.interp(np.arange(self.coverages.size), [0, last], BAND_ALPHAS)
        found = [
            (f"{100 * level:g} %", self._ends(level), float(alpha))
            for level, alpha in zip(self.coverages.tolist(), alphas.tolist(), strict=True)
        ]
        return found[::-1]

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Lower and upper end of the band of a coverage, (g,) each."""
        if self.transformed:
            low, high = np.quantile(self.draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=-1)
            return low, high
        half = float(ndtri(0.5 + 0.5 * level)) * self.std
        return self.effect - half, self.effect + half

    def _is_marked(self, k: int) -> bool:
        """Whether the values of a feature are marks with labels: categories, or two numbers."""
        return self.kinds[k] in LISTED or self.grid[k].size <= 2

    def _plot_line(
        self, line_kw: Mapping[str, Any] | None, band_kw: Mapping[str, Any] | None
    ) -> None:
        palette, x = current_palette(), self.grid[0]
        for label, ends, alpha in self._bands():
            band = {"color": palette.band, "alpha": alpha, "linewidth": 0.0, "label": label}
            self.ax_.fill_between(x, *ends, **merge(band, band_kw))
        line = {"color": palette.accent, "linewidth": 2.0, "label": "mean"}
        self.ax_.plot(x, self.effect, **merge(line, line_kw))
        inside = self.deciles[0]
        inside = inside[(inside >= x[0]) & (inside <= x[-1])]
        self.ax_.plot(
            inside,
            np.full(inside.size, 0.015),
            color=palette.faint,
            marker="|",
            markersize=7,
            linestyle="none",
            label="deciles",
            transform=self.ax_.get_xaxis_transform(),
        )
        self.ax_.margins(x=0.02)

    def _plot_marks(
        self, line_kw: Mapping[str, Any] | None, band_kw: Mapping[str, Any] | None
    ) -> None:
        palette, x = current_palette(), np.arange(self.grid[0].size)
        for label, (low, high), alpha in self._bands():
            band = {"color": palette.band, "alpha": alpha, "linewidth": 0.0, "label": label}
            self.ax_.bar(x, high - low, 0.6, bottom=low, **merge(band, band_kw))
        marks = {"color": palette.accent, "linestyle": "none", "marker": "_", "markersize": 14}
        self.ax_.plot(x, self.effect, **merge({**marks, "label": "mean"}, line_kw))
        self.ax_.margins(x=0.1)
        room = 0.1 * float(np.ptp(self.effect)) + 2.5 * float(self.std.max())
        if room and not self.transformed:
            self.ax_.set_ylim(self.effect.min() - room, self.effect.max() + room)

    def _plot_pair(
        self, ax: Any, line_kw: Mapping[str, Any] | None, band_kw: Mapping[str, Any] | None
    ) -> Self:
        self.ax_ = open_pair(ax)
        marked = [self._is_marked(k) for k in range(2)]
        x, y = (
            np.arange(grid.size + 1) - 0.5 if points else cell_edges(grid)
            for grid, points in zip(self.grid, marked, strict=True)
        )
        top = float(np.abs(self.effect).max()) or 1.0
        effect: dict[str, Any] = {"cmap": ramp(signed=self.centred)}
        if self.centred:
            effect |= {"vmin": -top, "vmax": top}
        deviation: dict[str, Any] = {"cmap": ramp("accent3")}
        what = "centred mean effect" if self.centred else "mean effect"
        for axes, values, options, title in (
            (self.ax_[0], self.effect, merge(effect, line_kw), what),
            (self.ax_[1], self.std, merge(deviation, band_kw), "standard deviation"),
        ):
            found = draw_cells(axes, x, y, values.T, **options)
            draw_colorbar(axes, found, title)
            dress(axes, self.names[0], "" if axes is self.ax_[1] else self.names[1])
            for axis, kind, labels, points in zip(
                (axes.xaxis, axes.yaxis), self.kinds, self.labels, marked, strict=True
            ):
                if points:
                    axis.set_ticks(np.arange(len(labels)), labels)
                else:
                    tick_values(axis, kind, 5)
            if marked[0]:
                set_labels(axes, np.arange(len(self.labels[0])), self.labels[0])
        self.ax_[1].tick_params(labelleft=False)
        self.figure_ = self.ax_[0].figure
        return self
