"""The estimator for a mixture of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from triegp.calibration.model import base_of
from triegp.checks import positive_number, whole_number
from triegp.devices import device_work
from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout, working_precision
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine, choose, return_memory
from triegp.estimators.base import count_of
from triegp.estimators.forgetting import (
    check_forgetting,
    forget_rows,
    queue_and_count,
    queue_and_forget,
)
from triegp.estimators.importances import Importances, ImportancesMixin, importances
from triegp.estimators.memory import Memory, memory_of
from triegp.estimators.parameters import fit_encoders
from triegp.estimators.pieces import PiecesRegressor
from triegp.estimators.streaming import Queued
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import TUNABLE, Settings, members_for, settings_of
from triegp.mixture.train import check_encoders, train_ensemble
from triegp.mixture.whole import Whole
from triegp.models.folds import FEW_FOLDS
from triegp.models.interface import Fitted, Trained
from triegp.models.run import Run
from triegp.models.state import ModelState, Stream
from triegp.tree.rows import Rows

HELD_ROWS = 50_000  # from this number on, features are prepared on the device that trains
HELD_BYTES = 24  # of each value there


class BinaryTreeGPRegressor(ImportancesMixin, PiecesRegressor):
    """Exact Gaussian-process regression with a mixture of binary tree kernels.

    Each member is a binary tree GP with its own bit order and weights, learned by maximum
    likelihood. The mean is a weighted average of the members' means. Noise by region, scale and
    tails around it are calibrated by rows left out in parts (`docs/training.md`). The prediction is
    a full distribution at each row. With the paper's presets it is the mixture of the members.

    Parameters
    ----------
    preset : {"default", "paper-bte", "paper-bt"}, default="default"
        Gives the values of all parameters below that are None. The paper's presets reproduce its
        experiments: 480 random orders on one grid, of which 20 are trained by BFGS. "paper-bte"
        mixes them by their training nll, "paper-bt" keeps the best one.
    n_members : int, optional
        Number of trees: 24 by default, 20 with the paper's presets. Above 2,000,000 rows the
        default of a calibrated mixture falls in proportion to their number, to 8 from 6,000,000
        rows on: each takes about 100 bytes of memory per row, and 70 above 2,000,000 rows, where
        messages are float32. At most 10,000.
    n_candidates : int, optional
        Number of random orders to choose from before training, per grid: 30 by default, 480 with
        the paper's presets. There is one grid per member, or one in all if shift is False.
    scaling : {"minmax", "ecdf", "both"}, optional
        How features are mapped onto [0, 1], as in `BitEncoder`; "both", the default, alternates
        between the members. "minmax" with the paper's presets.
    precision : "auto", "paper", int or array-like (n_features,), optional
        Bits per feature, as in `BitEncoder`: "auto" by default, "paper" with the paper's presets.
    shift : bool, optional
        Whether each member has its own, randomly shifted grid: True by default, False with the
        paper's presets.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns of X that are categories although they hold numbers or dates: names, indices from 0
        on, or one bool per column; None for none. Columns of a categorical dtype always are, and
        strings, unless all are dates (`docs/tables.md`).
    outside : {"widen", "clip", "unrelated", "error"}, default="widen"
        Treatment of rows outside the training box, the range of each feature. "widen": the mean of
        the nearest row of the box; the deviation grows with the distance from the border, by
        feature and in proportion to what the feature explains, and passes that of y. "clip": the
        prediction at the nearest row of the box. "unrelated": mean and deviation of y. "error": a
        ValueError. Models that are not calibrated read "widen" as "clip". With "widen", the first
        prediction of many or far rows outside warns.
    nugget : {"row", "bit"}, optional
        What the last weight means, as in `BitOrder`: "row" by default.
    noise : float, optional
        Noise variance relative to the variance of y: 1e-5 by default. With nugget="row" it is a
        floor, to which the learned nugget is added. The paper's presets train with 1e-5 and predict
        with 1 / n.
    learn_scale : bool, optional
        Whether the prior variance is learned: True by default, False with the paper's presets.
    optimizer : {"lbfgs", "bfgs"}, optional
        "lbfgs" by default, "bfgs" with the paper's presets. "bfgs" keeps a q x q matrix and raises
        ValueError for more than 5,000 bits.
    max_iter : int, optional
        Largest number of optimiser steps, on each part of the rows: 200 by default, 1,000 with
        the paper's presets.
    tol : float, optional
        Stop when every component of the gradient of nll / n is below this: 1e-3 by default, 1e-4
        with the paper's presets.
    mixture : {"calibrated", "stacking", "softmax", "best"}, optional
        How members are mixed: "calibrated" by default, "softmax" with "paper-bte", "best" with
        "paper-bt". "calibrated": the average of the members' means with the least squared
        leave-one-out error, with noise by region, scale and tails learned from its residuals. The
        others are plain mixtures of densities, without calibration. "stacking": with the weights
        that maximise the leave-one-out density. "softmax": with the softmax of -nll / temperature,
        for the training nll per row. "best": only the member of lowest nll.
    temperature : float, optional
        Temperature for mixture="softmax": 0.01 by default.
    multi_target : {"own", "shared"}, default="own"
        Whether each column of y trains its own orders and weights, or all share one set.
    weights : {"frequency", "precision"}, default="frequency"
        Meaning of `sample_weight`. "frequency": a weight c is c observations with this target. If
        rows at the same features practically never differ, neither weights nor repeated rows are
        independent observations. Each group then counts as one observation. Weights, scaled to
        mean 1, only pull the mean, and `fit` warns. "precision": a weight c divides the noise
        variance of one observation by c; weights are scaled to mean 1.
    target_transform : str or transformer, default="identity"
        Increasing map of y that the model works on. Predictions are in units of y all the same.
        "log": for y > 0; predictions are then positive, too. "yeo-johnson": a power in [0, 2], by
        maximum likelihood. "quantile": piecewise linear, to normal scores. "auto": of these and
        "identity" the one with the highest leave-one-out density of y, for each target; the
        identity unless another gains more than 0.01 nats per row. Or a transformer of scikit-learn
        with an inverse, of which each target fits a clone. Other than "identity", it refuses
        `known_noise` and `return_cov`.
    max_cells : int, optional
        Largest number of leaves of a tree: 4,194,304 by default, without limit if engine="cuda".
        With more rows, a tree sums them up by cell, the first bits of their keys, as many as this
        allows; the other bits count as noise. The model then holds a sample of the rows, those that
        leave-one-out is about, in the host's memory. Fewer cells make smaller and faster models
        (`docs/large.md`). Not used by mixture="softmax" and "best", nor with known noise.
    time_budget : float, optional
        Seconds for `fit`, from its beginning to the calibration; no limit by default. If time
        is short, there are fewer candidates (a third of the time at most) and fewer members, which
        share the time for training. A ConvergenceWarning says what was left out. `fit` can take
        20 % or 2 seconds longer.
    on_interrupt : {"raise", "keep"}, default="raise"
        Whether Ctrl-C during `fit` raises KeyboardInterrupt, or keeps the best found so far. With
        "keep", the first Ctrl-C ends training, and the model is finished. The second finishes it at
        once, with a less accurate solve or fewer members. A third within 2 seconds of the second
        raises KeyboardInterrupt. So does any before training begins, while a table is read or a
        transform is chosen. With verbose=1 each is answered on stderr; a ConvergenceWarning follows
        at the end.
    keep_rows : bool, default=True
        Whether to keep a copy of the training rows, which `refresh` and `refit` need.
    refit : {"auto", False}, default="auto"
        Whether `partial_fit` makes the model fit anew to all rows: when their number has doubled
        since the last fit, when more than a tenth of them lie outside the training box, or when a
        target that was constant no longer is. False: parameters stay those of `fit`.
    window : int, optional
        Number of rows to remember, the last ones; all by default. Older rows are forgotten a
        sixteenth of the window at a time, so up to a sixteenth more are known. `fit` forgets, too:
        rows are taken to be in the order of time. Needs `keep_rows`, and a model without cells.
    half_life : float, optional
        Number of rows after which the weight of a row is halved; no weight fades by default. It
        fades in steps of an eighth of the half life, s rows: after N rows, row i, counted from 0,
        has its sample weight times 2^(-s k / half_life), with k = (N - 1) // s - i // s. Rows are
        dropped after ten half lives, with a weight below 0.001, as if that were the window. In
        `fit`, too (`docs/streaming.md`). Needs weights="frequency".
    engine : {"auto", "cpu", "cuda"}, default="auto"
        Where training runs. "cuda" uses a CUDA device and raises RuntimeError naming the missing
        package or device; it never falls back. "auto" takes the device if there is one, the extra
        `triegp[cuda]` is installed and the work is large; otherwise the CPU (`docs/engine.md`). The
        result is the same to rounding, but for a smooth part, which is dense on a device. A
        mixture lies and predicts where it was trained. If this is set to "cpu" or "cuda" later, the
        next prediction moves it. Files and pickles are loaded on the CPU. Trees and a smooth part
        always lie in the host's memory and predict on the CPU.
    n_jobs : int or None, default=-1
        Threads; -1 is all cores, None is one. There are at most 64, or as many as cores. The result
        does not depend on it.
    verbose : int, default=0
        1 shows progress bars.
    random_state : int, RandomState, Generator or None, default=None
        Source of random numbers, for grids and candidates.

    Attributes
    ----------
    ensembles_ : tuple of Ensemble
        One per target, or one for all.
    rows_ : Rows or None
        The training rows as they were passed, those that are forgotten left out and with the
        weights to which they have faded; None if they are not kept.
    holds_rows_ : bool
        Whether the model holds all of its rows; otherwise it holds sums of them by cell.
    n_rows_, n_copies_ : int
        Number of training rows, rows that wait included and forgotten ones not; and how many of
        those that the model was last fitted to are copies of others.
    feature_importances_ : float64 (n_features,) or (n_features, n_targets)
        Share of the explained variance per feature.
    importances_ : Importances or list of them
        Shares of prior and explained variance, by feature and by bit; a list if y was
        2-dimensional.
    columns_ : Columns
        Kinds, categories and names of the columns of X, as they are read.
    layout_ : Layout
        The columns that the model works on, and the column of X that each comes from.
    encoders_ : tuple of BitEncoder
        Box, percentiles and precision, without shift; one per scaling.
    target_mean_, target_scale_ : float64 (n_targets,)
        Mean and standard deviation by which targets are standardised, after their transform.
    target_transform_ : str or transformer, or list of them
        Name of the transform, or the fitted transformer; a list if y was 2-dimensional.
    log_marginal_likelihood_ : float or float64 (n_targets,)
        Log marginal likelihood of the training targets in their own units, averaged over the
        members by weight.
    loo_score_ : float
        Mean leave-one-out log density of the training targets in their own units, less
        `loo_optimism_`.
    loo_optimism_ : float or float64 (n_targets,)
        What leave-one-out log densities gain, per row, as parameters have seen the targets.
    one_dimensional_ : bool
        Whether y was passed as a vector.
    stopped_early_ : bool
        Whether the time budget or Ctrl-C ended training, or something was left out.
    n_evaluations_ : int
        Evaluations of the likelihood with gradient, over all members.
    fit_seconds_ : float
        Wall-clock seconds of the last fit.
    training_curve_ : TrainingCurve or None
        Nll per row at the steps of the last fit.
    n_iter_ : int
        Optimiser steps of the member that took most.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((500, 2))
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = BinaryTreeGPRegressor(n_members=4, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.25, 0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 3 * std[0])
    True

    Notes
    -----
    Paper, section 5. Training is O(n) per evaluation of the likelihood; see `docs/training.md`.
    Predictions are for a new observation, noise included. latent=True predicts the function: its
    deviation is the error of the mean. With K members, predicting m rows is O(K m) and
    leave-one-out is O(K n). `predict_distribution` has at most 25 components per row, for the
    tails, and one with latent=True; if not calibrated, one per member. `sample_y` draws each sample
    from one member drawn by weight, and scales it to agree with `predict`, in O(K (n + m) + m
    n_samples).
    """

    _by_var = True
    _by_folds = True
    _kind = "Ensemble"

    def __init__(
        self,
        *,
        preset: str = "default",
        n_members: int | None = None,
        n_candidates: int | None = None,
        scaling: str | None = None,
        precision: Any = None,
        shift: bool | None = None,
        categorical_features: Any = "from_dtype",
        outside: str = "widen",
        nugget: str | None = None,
        noise: float | None = None,
        learn_scale: bool | None = None,
        optimizer: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        mixture: str | None = None,
        temperature: float | None = None,
        multi_target: str = "own",
        weights: str = "frequency",
        target_transform: Any = "identity",
        max_cells: int | None = None,
        time_budget: float | None = None,
        on_interrupt: str = "raise",
        keep_rows: bool = True,
        refit: Any = "auto",
        window: int | None = None,
        half_life: float | None = None,
        engine: str = "auto",
        n_jobs: int | None = -1,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.preset = preset
        self.n_members = n_members
        self.n_candidates = n_candidates
        self.scaling = scaling
        self.precision = precision
        self.shift = shift
        self.categorical_features = categorical_features
        self.outside = outside
        self.nugget = nugget
        self.noise = noise
        self.learn_scale = learn_scale
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.mixture = mixture
        self.temperature = temperature
        self.multi_target = multi_target
        self.weights = weights
        self.target_transform = target_transform
        self.max_cells = max_cells
        self.time_budget = time_budget
        self.on_interrupt = on_interrupt
        self.keep_rows = keep_rows
        self.refit = refit
        self.window = window
        self.half_life = half_life
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def forget(self, *, keep_last: int | None = None, factor: float = 1.0) -> Self:
        """Forget old rows: keep the last ones only, or let the weights of all rows fade.

        The posterior becomes that of the fitted orders, weights and noise given the rows that are
        left, with their weights. Box, percentiles, target scale, mixture weights and calibration
        stay as fitted, until the model is fitted anew: to the rows that are left, with these
        weights. With `refit="auto"` that is due when their number is twice that of the rows of the
        last fit that are still there.

        Parameters
        ----------
        keep_last : int, optional
            Number of rows to keep, the last ones that were passed; all by default.
        factor : float, default=1.0
            In (0, 1]; multiplies the weights of all rows, those passed with `sample_weight`
            included. Called once a day with 0.9, a row of k days ago has weight 0.9^k. Rows whose
            weight falls below 1e-12 are dropped. With weights="precision" old rows become noisier,
            but still count once each when error bars are learned.

        Returns
        -------
        self
            With fewer rows, or with other weights.

        Examples
        --------
        >>> import numpy as np
        >>> from triegp import BinaryTreeGPRegressor
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> y = np.repeat([0.0, 1.0], 100) + 0.01 * np.sin(1e4 * X[:, 0])
        >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
        >>> model.forget(keep_last=150).n_rows_
        150

        Notes
        -----
        O(n) per tree. Rows that wait are inserted first. Raises ValueError if the training rows are
        not kept (`keep_rows`), if the model holds sums of its rows (`max_cells`), or if no row that
        it uses is left.
        """
        check_is_fitted(self)
        if keep_last is not None:
            keep_last = whole_number("keep_last", keep_last)
        share = positive_number("factor", factor)
        if share > 1.0:
            raise ValueError(f"factor must lie in (0, 1], got {factor}")
        with self._lock:
            stream = self._insert_all()
            check_forgetting(stream, "forget")
            self._stream = forget_rows(stream, keep_last, share)
            self.__dict__.pop("_summary", None)
        return self

    @property
    def ensembles_(self) -> tuple[Ensemble, ...]:
        """One per target, or one for all; waiting rows are inserted first."""
        return tuple(cast(Ensemble, base_of(part)) for part in self._inserted().fitted)

    @property
    def n_iter_(self) -> int:
        """Optimiser steps of the member that took most; at least 1."""
        check_is_fitted(self)
        ensembles = [cast(Ensemble, base_of(part)) for part in self._stream.fitted]
        steps = [member.trained.n_iter for part in ensembles for member in part.members]
        return max(1, *steps)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "_stream"):
            return text
        stream = self._stream
        ensembles = [cast(Ensemble, base_of(part)) for part in stream.fitted]
        noise = [
            float(np.mean([member.posteriors[0].new_noise for member in part.members]))
            for part in ensembles
        ]
        n_bits = ensembles[0].members[0].order.n_bits
        fewest, most = (f([len(part.members) for part in ensembles]) for f in (min, max))
        members = count_of(most, "member") if fewest == most else f"{fewest} to {most} members"
        each = " each" if len(ensembles) > 1 else ""
        contents = f"{count_of(n_bits, 'bit')}, {members}{each}"
        return f"<{text} fitted: {self._describe(stream, contents, noise)}>"

    def _memory(self) -> Memory | None:
        window, half_life = self.window, self.half_life
        return memory_of(window, half_life, keep_rows=self.keep_rows, weights=self.weights)

    def _queue(self, stream: Stream, batch: Rows) -> Queued:
        memory, refit = self._memory(), self.refit == "auto"
        if memory is None:
            return super()._queue(stream, batch)
        check_forgetting(stream, "window" if self.half_life is None else "half_life")
        if self._forgets(batch.n_rows):
            return queue_and_forget(stream, batch, memory, refit=refit)
        return queue_and_count(stream, batch, memory, refit=refit)

    def _settings(self) -> Settings:
        if self.max_cells is not None:
            whole_number("max_cells", self.max_cells, least=2)
        return settings_of(self.preset, {name: getattr(self, name) for name in TUNABLE})

    def _by_cells(self, n_rows: int) -> bool:
        settings = self._settings()
        usual = settings.mixture not in ("softmax", "best") and settings.nugget == "row"
        return usual and super()._by_cells(n_rows)

    def _encoders(self, rows: Rows, settings: Settings, layout: Layout) -> tuple[Quantiser, ...]:
        encoders = fit_encoders(
            rows.features,
            rows.weight,
            scaling=settings.scaling,
            precision=working_precision(layout, settings.precision),
            outside=self.outside,
            margin=settings.box_margin,
        )
        check_encoders(encoders, settings)
        return encoders

    def _hold_training_rows(self, rows: Rows, columns: Columns) -> Any:
        if rows.weight is not None or rows.known_noise is not None or not columns.plain:
            return None
        X = rows.features
        if rows.n_rows < HELD_ROWS or X.dtype not in (np.float32, np.float64):
            return None
        work = rows.n_rows * self._settings().all_candidates
        engine = choose(self.engine, work, 0, rows.n_rows * HELD_BYTES * X.shape[1])
        if engine.on_host:
            return None
        held = engine.hold(X)
        return held if np.isfinite(held).all() else None

    def _variants(self, settings: Settings) -> list[tuple[Settings, Settings]]:
        if settings.mixture != "calibrated":
            return []
        few = max(2, settings.n_members // FEW_FOLDS)
        return [(settings, replace(settings, n_members=min(few, settings.n_members)))]

    def _train(
        self,
        encoders: tuple[Quantiser, ...],
        rows: Rows,
        settings: Settings,
        run: Run,
        whole: Whole | None = None,
    ) -> Trained:
        if self.n_members is None and settings.mixture == "calibrated":
            n_rows = rows.n_rows if whole is None else whole.n_rows
            settings = replace(settings, n_members=members_for(n_rows, settings.n_members))
        return train_ensemble(encoders, rows, settings, run, whole)

    @device_work()
    def _fit_rows(self, *given: Any) -> tuple[ModelState, list[Warning]]:
        state, told = super()._fit_rows(*given)
        return_memory()
        return state, told

    def _engine_for(self, fitted: Sequence[Fitted]) -> Engine | None:
        places = {part.on_host for part in fitted}
        if self.engine == "cpu" and False in places:
            return CpuEngine()
        return choose("cuda", 0.0) if self.engine == "cuda" and True in places else None

    def _shares(self, fitted: Ensemble, column: int) -> Importances:
        found = importances(fitted, column)
        return_memory()
        return found
