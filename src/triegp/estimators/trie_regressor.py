"""The estimator for trees and a smooth part as one Gaussian process."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from triegp.additive.fitted import FittedForest
from triegp.additive.settings import VARIANCES, Settings, check_settings
from triegp.additive.train import train_forest
from triegp.calibration.model import base_of
from triegp.checks import boolean, one_of, whole_number
from triegp.encoding.layout import Layout, working_precision
from triegp.encoding.quantiser import Quantiser
from triegp.estimators.base import count_of
from triegp.estimators.importances import (
    Importances,
    ImportancesMixin,
    forest_importances,
    layered_importances,
)
from triegp.estimators.inputs import common_scale
from triegp.estimators.parameters import fit_encoders
from triegp.estimators.pieces import PiecesRegressor
from triegp.estimators.whole import HELD_ROWS
from triegp.layers.layered import Layered, evidence_error, forest_of, with_variance
from triegp.layers.train import MOST_ROWS, train_layered
from triegp.mixture.whole import Whole
from triegp.models.folds import FEW_FOLDS
from triegp.models.interface import Fitted, Trained
from triegp.models.run import Run
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

FEWEST_TREES = 4  # of the smaller models that few rows are cross-fitted with


class TrieGPRegressor(ImportancesMixin, PiecesRegressor):
    """Gaussian-process regression with a smooth part, trees and local noise.

    y = g(x) + f_1(x) + ... + f_T(x) + noise. The smooth part g is a Gaussian process with a Matern
    or RBF kernel and one lengthscale per input. Each f_t is a binary tree GP on its own grid. All
    are one Gaussian process, whose kernel is the sum of their kernels: g explains what is smooth,
    the trees explain steps and what changes over short distances. Lengthscales, orders, weights
    and noise are learned together by gradients of the marginal likelihood. The noise of an
    observation differs from place to place, and is learned from rows left out in parts.

    Parameters
    ----------
    n_trees : int, default=64
        Number of trees in the sum, T. At most 10,000.
    smooth : {"auto", True, False}, default="auto"
        Whether there is a smooth part. "auto" drops it after training if it improves the log
        likelihood of training rows by less than 0.001 per row.
    kernel : {"matern32", "matern52", "matern12", "rbf"}, default="matern32"
        Kernel of the smooth part, with one lengthscale per input.
    init : {"even", "random", "trained"}, default="even"
        Initial bit orders. "even": bits sorted by the width of their cells, features in a random
        order per tree. "random": features shuffled again at each depth. "trained": the orders of 16
        single trees that are trained first, each used on several grids.
    slope : float, default=1.5
        For even orders: initial exponent with which the remaining variance falls with the width of
        the cells. Training changes it.
    scaling : {"minmax", "ecdf", "both"}, default="both"
        How features are mapped onto [0, 1] for the trees, as in `BitEncoder`; "both" alternates
        between trees.
    precision : "auto", "paper", int or array-like (n_features,), optional
        Bits per feature in the trees, as in `BitEncoder`; 8 by default, "auto" from 196,608 rows
        on.
    max_iter : int, default=80
        Optimiser steps. Each takes the exact gradient of the likelihood of about 500 rows, or of
        all rows up to 640. 0 learns only the scale. Calibrated models of fewer than 1,000 rows take
        a quarter of the steps, or none if that predicts held-out rows better. The model is always
        conditioned on all rows.
    variance : {"nearby", "exact"}, default="nearby"
        How variances are computed from more than 2,000 rows. "nearby": from the 256 training rows
        near a row, times a factor that is learned by `fit`. "exact": by one solve per row. May be
        changed after `fit`, by `set_params`; the calibration stays.
    calibrated : bool, default=True
        Whether noise by region, scale and tails of the predictive distribution are learned by
        leave-one-out (`docs/training.md`), with fewer than 5,000 rows also a linear trend, and with
        fewer than 1,000 the number of steps. Otherwise the prediction is one Gaussian.
    local_noise : bool, default=True
        Whether calibrated models learn noise by region, if there are at least 400 rows. Scale and
        tails are learned in any case. smooth=False, local_noise=False is a plain sum of trees.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns of X that are categories although they hold numbers or dates: names, indices from 0
        on, or one bool per column; None for none. Columns of a categorical dtype always are, and
        strings, unless all are dates (`docs/tables.md`).
    outside : {"widen", "clip", "unrelated", "error"}, default="widen"
        Treatment of rows outside the training box, the range of each feature. "widen": the smooth
        part goes on, and deviations grow with the distance. Without a smooth part: the mean of the
        nearest row of the box; the deviation grows by feature, in proportion to what the feature
        explains, and passes that of y; if the model is not calibrated, as "clip". "clip": the
        prediction at the nearest row of the box. "unrelated": mean and deviation of y. "error": a
        ValueError. With "widen", the first prediction of many or far rows outside warns.
    multi_target : {"own", "shared"}, default="own"
        Whether each column of y trains its own model, or all share one set of orders, weights,
        lengthscales and scales, and one noise relative to the variance of y, learned from all
        columns together. Only the calibration is that of each column. Fitting k columns then takes
        little more time than one, and so do their deviations. It suits columns that depend on the
        features in similar ways; for others it is worse (`docs/forest.md`). With `known_noise`,
        columns that share a model are also standardised by one scale, their root mean square
        deviation, and must be of about the same scale; `partial_fit` takes `known_noise` only if
        `fit` had some.
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
        Largest number of leaves of a tree of many rows, 4,194,304 by default. More rows, if they
        are more than 524,288, are read in pieces and summed up by cell (`docs/large.md`).
    time_budget : float, optional
        Seconds for `fit`, from its beginning to the calibration; no limit by default. Time for the
        solve on all rows and for the calibration is reserved. If time is short, there are fewer
        training steps, fewer inducing rows and neighbours of the smooth part, local noise or the
        whole calibration is left out, and last the solve ends at a larger residual. A
        ConvergenceWarning says what was left out. With 30,000 rows on two cores, budgets of 5, 10,
        15 and 25 seconds took 4, 10, 15 and 19; without a budget the fit took 24.
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
        Source of random numbers, for grids, orders, rows and probes.

    Attributes
    ----------
    forests_ : tuple of FittedForest
        One per target, or one for all.
    rows_ : Rows or None
        The training rows as they were passed; None if they are not kept.
    holds_rows_ : bool
        Whether the model holds all of its rows; otherwise it holds sums of them by cell.
    n_rows_, n_copies_ : int
        Number of training rows, rows that wait included; and how many of those that the model was
        last fitted to are copies of others.
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
        Log marginal likelihood of the training targets in their own units: exact up to 2,000 rows,
        otherwise estimated.
    log_marginal_likelihood_error_ : float or float64 (n_targets,)
        Standard error of that estimate; 0 if it is exact.
    loo_score_ : float
        Mean leave-one-out log density of the training targets in their own units, less
        `loo_optimism_`.
    loo_optimism_ : float or float64 (n_targets,)
        What leave-one-out log densities gain, per row, as parameters have seen the targets.
    one_dimensional_ : bool
        Whether y was passed as a vector.
    stopped_early_ : bool
        Whether the time budget or Ctrl-C ended training, or something was left out.
    diverged_ : bool
        Whether training stopped because the likelihood fell or solves failed. `fit` then issues a
        ConvergenceWarning and keeps the best parameters found before.
    n_evaluations_ : int
        Evaluations of the likelihood's gradient, over all targets.
    fit_seconds_ : float
        Wall-clock seconds of the last fit.
    training_curve_ : TrainingCurve or None
        Nll per row at the steps of the last fit.
    n_iter_ : int
        Optimiser steps of the target that took most.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import TrieGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 2))
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = TrieGPRegressor(n_trees=16, max_iter=10, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.25, 0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 3 * std[0])
    True

    Notes
    -----
    Inputs of the smooth part are the features, standardised, and also their ranks where these
    differ from the values. It is exact up to 2,000 rows, and beyond computed by 256 inducing rows
    plus 512 nearest neighbours of blocks of about 32 rows. From 65,536 rows on there are 34 million
    / n neighbours. On a CUDA device it is exact.

    From 196,608 rows on there are three layers, y = effects(x) + base(x) + rest(x) + noise: a
    function of each feature; trees and a smooth part as here, from 131,072 of the rows; and a
    mixture of trees, as of `BinaryTreeGPRegressor`, from all others. If mixtures without the lower
    layers predict held-out rows better, the rest has all rows (`docs/forest.md`).

    Each training step is O(b^2 (T + p) + b^3), with parts of b = 512 rows and p inputs, whatever n.
    From 1,000 rows on, a fifth of the rows, at most 2,000, is held out of training: the parameters
    that predict these rows best are kept, and calibration learns scale and tails from them. With
    fewer rows, models are trained on three quarters of the rows and calibration learns from the
    rest (cross-fitting). Local noise is learned from at most 100,000 of the rows. All of it comes
    from predictions of rows without their fold (`docs/training.md`).

    The model is then conditioned on all rows: exactly up to 2,000 rows, by a dense Cholesky factor
    in O(n^2 T + n^3), and beyond by conjugate gradients. These need noise of at least a millionth
    of the prior variance, which the model then has. They end at a relative residual of 1e-5 up to
    20,000 rows. Beyond, it is 2 % of the deviation of the noise relative to
    that of y, between 1e-5 and 1e-2, which bounds the error of the mean at training rows in root
    mean square. One step takes O(n T) for the trees and O(n m) for m inducing rows. The
    preconditioner has the inducing rows, 256 columns of the trees, and regressions of blocks of
    rows on 96 neighbours under what these leave of kernel and noise. Without a smooth part, and on
    a CUDA device, it has 1,000 random rows (67 million / n from 67,000 rows on) and blocks of 64
    rows.

    Means are O(T log n) per row, and O((m + k) p) for the smooth part with k neighbours; up to
    2,000 rows, and after a fit on a device, O(n) for the smooth part. Up to 2,000 rows variances
    are exact, by the dense factor. Beyond, they are from the 256 training rows near a row, times a
    factor that is learned, in O(256 T + 256^2) per row whatever n. The result for a row does not
    depend on the other rows.

    `predict` with return_cov and `sample_y` are joint, by solves with all rows: one per row, or one
    per sample if there are fewer samples than rows. Their variances are those of variance="exact".
    New observations at a training row are an exception: what they add is from nearby rows. If there
    are fewer samples than rows, they take a prior that is approximated by inducing rows and
    neighbours.

    Leave-one-out is exact up to 2,000 rows. Beyond, its variances are from nearby rows, too.
    latent=True predicts the functions g + f_1 + ... + f_T, without noise: its deviation is the
    posterior one, at most that of an observation. Each target has its own model, unless
    multi_target="shared".

    Outside the training box, with outside="widen", the smooth part goes on as its lengthscales say.
    The trees fade with the correlation of the smooth part between the row and the nearest row of
    the box. Deviations grow with the distance, up to that of y or more. Without a smooth part the
    mean is that of the border, and the deviation grows without limit.
    """

    _by_var = False
    _by_folds = False  # the models of the folds are smaller, and their variances larger
    _kind = "FittedForest"

    def __init__(
        self,
        *,
        n_trees: int = 64,
        smooth: Any = "auto",
        kernel: str = "matern32",
        init: str = "even",
        slope: float = 1.5,
        scaling: str = "both",
        precision: Any = None,
        max_iter: int = 80,
        variance: str = "nearby",
        calibrated: bool = True,
        local_noise: bool = True,
        categorical_features: Any = "from_dtype",
        outside: str = "widen",
        multi_target: str = "own",
        weights: str = "frequency",
        target_transform: Any = "identity",
        max_cells: int | None = None,
        time_budget: float | None = None,
        on_interrupt: str = "raise",
        keep_rows: bool = True,
        refit: Any = "auto",
        engine: str = "auto",
        n_jobs: int | None = -1,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_trees = n_trees
        self.smooth = smooth
        self.kernel = kernel
        self.init = init
        self.slope = slope
        self.scaling = scaling
        self.precision = precision
        self.max_iter = max_iter
        self.variance = variance
        self.calibrated = calibrated
        self.local_noise = local_noise
        self.categorical_features = categorical_features
        self.outside = outside
        self.multi_target = multi_target
        self.weights = weights
        self.target_transform = target_transform
        self.max_cells = max_cells
        self.time_budget = time_budget
        self.on_interrupt = on_interrupt
        self.keep_rows = keep_rows
        self.refit = refit
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @property
    def forests_(self) -> tuple[FittedForest, ...]:
        """One per target, or one for all; waiting rows are inserted first."""
        return tuple(forest_of(self._as_asked(part)) for part in self._inserted().fitted)

    @property
    def diverged_(self) -> bool:
        """Whether training stopped because the likelihood fell or solves failed."""
        check_is_fitted(self)
        return any(forest_of(part).diverged for part in self._stream.fitted)

    @property
    def n_iter_(self) -> int:
        """Optimiser steps of the target that took most; at least 1."""
        check_is_fitted(self)
        return max(1, *(forest_of(part).n_steps for part in self._stream.fitted))

    @property
    def log_marginal_likelihood_error_(self) -> Any:
        """Standard error of `log_marginal_likelihood_`; 0 if it is exact."""
        bases = [base_of(self._as_asked(part)) for part in self._inserted().fitted]
        errors = [error for base in bases for error in evidence_error(base)]
        return errors[0] if self.one_dimensional_ else np.array(errors)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "_stream"):
            return text
        stream = self._stream
        models = [forest_of(part).model for part in stream.fitted]
        trees = count_of(len(models[0].orders), "tree") + " each" * (len(models) > 1)
        noise = [float(model.new_noise) for model in models]
        return f"<{text} fitted: {self._describe(stream, trees, noise)}>"

    def _settings(self) -> Settings:
        one_of("variance", self.variance, VARIANCES)
        if self.max_cells is not None:
            whole_number("max_cells", self.max_cells, least=2)
        boolean("local_noise", self.local_noise)
        return check_settings(
            Settings(
                n_trees=self.n_trees,
                smooth=self.smooth,
                kernel=self.kernel,
                init=self.init,
                slope=self.slope,
                scaling=self.scaling,
                precision=self.precision,
                max_iter=self.max_iter,
                calibrated=self.calibrated,
                goes_on=self.outside == "widen",
            )
        )

    def _fewest_summed(self) -> int:
        return 2 * HELD_ROWS  # the base is learned from other rows than those held

    def _as_asked(self, fitted: Fitted) -> Fitted:
        return with_variance(fitted, self.variance)

    def _encoders(self, rows: Rows, settings: Settings, layout: Layout) -> tuple[Quantiser, ...]:
        precision = settings.precision
        if precision is None:
            precision = 8 if rows.n_rows <= MOST_ROWS else "auto"
        return fit_encoders(
            rows.features,
            rows.weight,
            scaling=settings.scaling,
            precision=working_precision(layout, precision),
            outside=self.outside,
        )

    def _location_and_scale(self, rows: Rows) -> tuple[Floats, Floats]:
        mean, scale = super()._location_and_scale(rows)
        if self.multi_target == "shared" and rows.known_noise is not None and scale.size > 1:
            scale = common_scale(rows.y, scale)  # so that the known noise is the same for all
        return mean, scale

    def _variants(self, settings: Settings) -> list[tuple[Settings, Settings]]:
        if not settings.calibrated:
            return []
        few = min(max(FEWEST_TREES, settings.n_trees // FEW_FOLDS), settings.n_trees)
        steps = sorted({-(-settings.max_iter // 2), 0}, reverse=True)
        found = [replace(settings, max_iter=n) for n in steps]
        return [(one, replace(one, n_trees=few)) for one in found]

    def _train(
        self,
        encoders: tuple[Quantiser, ...],
        rows: Rows,
        settings: Settings,
        run: Run,
        whole: Whole | None = None,
    ) -> Trained:
        if whole is None and rows.n_rows <= MOST_ROWS:
            trained = train_forest(encoders, rows, settings, run)
        else:
            trained = train_layered(encoders, rows, settings, run, whole)
        fitted = forest_of(trained.fitted)
        if fitted.diverged:
            warnings.warn(
                f"training stopped after {fitted.n_steps} steps because the likelihood fell or "
                "solves failed; the best parameters found are kept",
                ConvergenceWarning,
                stacklevel=5,
            )
        return trained

    def _shares(self, fitted: FittedForest | Layered, column: int) -> Importances:
        if isinstance(fitted, Layered):
            return layered_importances(fitted, column)
        return forest_importances(fitted.model, column)
