"""Mean effect of one or two features, with bands from joint draws of the function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from triegp.checks import boolean, random_generator, whole_number
from triegp.metrics.forecasts import choose_target, unwrap
from triegp.models.distribution import check_quantiles
from triegp.plots.canvas import (
    Display,
    Style,
    cell_edges,
    draw_bands,
    draw_cells,
    draw_rug,
    dress,
    merge,
    ramp,
    set_labels,
    tick_values,
)
from triegp.plots.features import (
    choose_values,
    deciles_of,
    nameless_rows,
    read_feature,
    replace_values,
    training_rows,
)
from triegp.plots.palette import current_palette
from triegp.plots.text import LISTED

Floats = npt.NDArray[np.float64]

COVERAGES = (0.5, 0.9)
N_GRID = {1: 24, 2: 10}  # values per feature, by the number of features
N_ROWS = {1: 50, 2: 20}  # rows that are averaged


@dataclass(eq=False)
class PartialEffectDisplay(Display):
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
        **style: Any,
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
        **style
            As for `plot`.
        """
        names = [features] if isinstance(features, str) or not np.iterable(features) else features
        names = list(names)
        if len(names) not in (1, 2):
            raise ValueError(f"features must be one or two, got {len(names)}")
        levels, centred = (
            np.sort(check_quantiles(coverages, "coverages")),
            boolean("centred", centred),
        )
        fitted, _ = unwrap(model)
        target = choose_target(target, fitted.target_mean_.size)
        if X is None:
            if fitted is not model:
                raise ValueError("X must be given for a pipeline")
            X = training_rows(model)
        columns = [read_feature(X, name, fitted if fitted is model else None) for name in names]
        if len({column.index for column in columns}) < len(columns):
            raise ValueError(f"features must be two different ones, got {features}")
        rng = random_generator(random_state)
        size = columns[0].values.size
        n_grid = N_GRID[len(names)] if n_grid is None else whole_number("n_grid", n_grid)
        n_rows = N_ROWS[len(names)] if n_rows is None else whole_number("n_rows", n_rows)
        rows = np.sort(rng.choice(size, min(n_rows, size), replace=False))
        sources = [choose_values(column, n_grid) for column in columns]
        shape = tuple(source.size for source in sources)
        places = np.meshgrid(*sources, rows, indexing="ij")
        replaced = {col.index: at.ravel() for col, at in zip(columns, places[:-1], strict=True)}
        fitted, table = unwrap(model, replace_values(X, places[-1].ravel(), replaced))
        with nameless_rows():
            mean = fitted.predict(table, latent=True)
            n_draws = whole_number("n_draws", n_draws, 2)
            drawn = fitted.sample_y(table, n_draws, rng, latent=True)
        if not fitted.one_dimensional_:
            mean, drawn = mean[:, target], drawn[:, target]
        effect = np.asarray(mean).reshape(*shape, rows.size).mean(axis=-1)
        draws = np.asarray(drawn).reshape(*shape, rows.size, n_draws).mean(axis=-2)
        if centred:
            effect = effect - effect.mean()
            draws = draws - draws.mean(axis=tuple(range(len(shape))))
        values = [col.values[source] for col, source in zip(columns, sources, strict=True)]
        grid = [
            np.arange(at.size, dtype=np.float64) if column.listed else at
            for column, at in zip(columns, values, strict=True)
        ]
        labels = [
            [column.label(value) for value in at.tolist()]
            for column, at in zip(columns, values, strict=True)
        ]
        transforms = fitted.target_transform_
        transform = transforms[target] if isinstance(transforms, list) else transforms
        display = cls(
            names=tuple(column.name for column in columns),
            kinds=tuple(column.kind for column in columns),
            grid=tuple(grid),
            labels=tuple(labels),
            effect=effect,
            std=draws.std(axis=-1, ddof=1),
            draws=draws,
            deciles=tuple(map(deciles_of, columns)),
            centred=centred,
            coverages=levels,
            transformed=transform != "identity",
        )
        return display.plot(**style)

    def plot(self, ax: Any = None, *, line_kw: Style = None, band_kw: Style = None) -> Self:
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
        what = "centred mean effect" if self.centred else "mean effect"
        # Categories, or two numbers, are marks with labels.
        marked = [
            kind in LISTED or grid.size <= 2
            for kind, grid in zip(self.kinds, self.grid, strict=True)
        ]
        if len(self.names) == 2:
            signed, top = self.centred, float(np.abs(self.effect).max()) or 1.0
            colors: dict[str, Any] = {"vmin": -top, "vmax": top} if signed else {}
            first, second = self._open(ax, (9.6, 3.8), 2)
            effect = merge(line_kw, cmap=ramp(signed=signed), **colors)
            self._plot_cells(first, self.effect, what, effect, marked)
            deviation = merge(band_kw, cmap=ramp("accent3"))
            self._plot_cells(second, self.std, "standard deviation", deviation, marked)
            second.set_ylabel("")
            second.tick_params(labelleft=False)
            return self
        ax = self._open(ax)
        draw = self._plot_marks if marked[0] else self._plot_line
        draw(ax, list(map(self._ends, self.coverages.tolist())), line_kw, band_kw)
        dress(ax, self.names[0], what, "best")
        if marked[0]:
            set_labels(ax, np.arange(self.grid[0].size), self.labels[0])
        else:
            tick_values(ax.xaxis, self.kinds[0])
        return self

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Lower and upper end of the band of a coverage, (g,) each."""
        if self.transformed:
            low, high = np.quantile(self.draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=-1)
            return low, high
        half = float(ndtri(0.5 + 0.5 * level)) * self.std
        return self.effect - half, self.effect + half

    def _plot_line(self, ax: Any, ends: Any, line_kw: Style, band_kw: Style) -> None:
        palette, x = current_palette(), self.grid[0]
        draw_bands(ax, x, self.coverages, ends, band_kw)
        line = {"color": palette.accent, "linewidth": 2.0, "label": "mean"}
        ax.plot(x, self.effect, **merge(line_kw, **line))
        inside = self.deciles[0]
        inside = inside[(inside >= x[0]) & (inside <= x[-1])]
        draw_rug(ax, inside, 0.015, label="deciles")
        ax.margins(x=0.02)

    def _plot_marks(self, ax: Any, ends: Any, line_kw: Style, band_kw: Style) -> None:
        x = np.arange(self.grid[0].size)
        draw_bands(ax, x, self.coverages, ends, band_kw, bars=True)
        marks: dict[str, Any] = {"linestyle": "none", "marker": "_", "markersize": 14}
        marks |= {"color": current_palette().accent, "label": "mean"}
        ax.plot(x, self.effect, **merge(line_kw, **marks))
        ax.margins(x=0.1)
        room = 0.1 * float(np.ptp(self.effect)) + 2.5 * float(self.std.max())
        if room and not self.transformed:
            ax.set_ylim(self.effect.min() - room, self.effect.max() + room)

    def _plot_cells(
        self, ax: Any, values: Floats, title: str, style: Style, marked: list[bool]
    ) -> None:
        """A heat map over two features; marked: whether the values of each are marks."""
        edges = {
            name: cell_edges(grid)
            for name, grid, marks in zip("xy", self.grid, marked, strict=True)
            if not marks
        }
        draw_cells(ax, values.T, title, style, **edges)
        dress(ax, self.names[0], self.names[1])
        for axis, kind, labels, marks in zip(
            (ax.xaxis, ax.yaxis), self.kinds, self.labels, marked, strict=True
        ):
            if marks:
                axis.set_ticks(np.arange(len(labels)), labels)
            else:
                tick_values(axis, kind, 5)
        if marked[0]:
            set_labels(ax, np.arange(len(self.labels[0])), self.labels[0])
