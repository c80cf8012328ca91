"""The estimator for a sum of trees as one Gaussian process."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from triegp.additive.fitted import FittedForest
from triegp.additive.settings import Settings, check_settings
from triegp.additive.train import train_forest
from triegp.additive.variance import diagonal_samples
from triegp.calibration.folds import N_FOLDS
from triegp.calibration.model import base_of
from triegp.encoding.encoder import BitEncoder
from triegp.estimators.base import TreeGPRegressor, count_of, loadable
from triegp.estimators.importances import Importances, ImportancesMixin, forest_importances
from triegp.estimators.parameters import fit_encoders
from triegp.files.additive import pack_forest, unpack_forest
from triegp.files.calibration import calibrated
from triegp.files.state import PartFormat
from triegp.models.interface import Trained
from triegp.models.run import Run
from triegp.tree.rows import Rows


@loadable
class TrieGPRegressor(ImportancesMixin, TreeGPRegressor):
    """Gaussian-process regression with a sum of binary trees as kernel.

    y = f_1(x) + ... + f_T(x) + noise, with each f_t a binary tree GP on its own grid. This is one
    Gaussian process whose kernel is the sum of the trees' kernels. A single tree is piecewise
    constant on its grid; a sum over shifted grids is nearly smooth. Orders, weights and noise are
    learned jointly by stochastic gradients of the marginal likelihood; see `docs/forest.md`.

    Parameters
    ----------
    n_trees : int, default=64
        Number of trees in the sum, T.
    init : {"even", "random", "trained"}, default="even"
        Initial bit orders. "even": bits sorted by the width of their cells, features in a random
        order per tree. "random": features shuffled again at each depth. "trained": the orders of 16
        single trees that are trained first, each used on several grids.
    slope : float, default=1.5
        For init="even": initial exponent with which the remaining variance falls with the width of
        the cells. Training changes it.
    scaling : {"minmax", "ecdf", "both"}, default="both"
        How features are mapped onto [0, 1], as in `BitEncoder`; "both" alternates between trees.
    precision : "auto", "paper", int or array-like (n_features,), default=8
        Bits per feature, as in `BitEncoder`.
    max_iter : int, default=40
        Optimiser steps on `train_rows` rows. If there are more rows, a quarter as many steps on up
        to 4 `train_rows` rows follow. 0 learns only the scale. With fewer than 1,000 rows, a
        quarter of the steps or none is taken if that predicts held-out rows better.
    train_rows : int, default=5000
        Number of random rows for the first stage of training. The model is always conditioned on
        all rows.
    variance : {"auto", "exact", "samples", "cheap"}, default="auto"
        How variances are computed. "exact": by one solve per row. "samples": from posterior
        samples. "auto": by the cheaper of these two. "cheap": without solves, from the variances of
        the single trees, calibrated by leave-one-out. Fixed by `fit`; later changes have no effect.
    variance_error : float, default=0.2
        Relative standard error of variances from samples, the same at each row; 2 / error^2 samples
        are drawn.
    calibrated : bool, default=True
        Whether noise by region, scale and tails of the predictive distribution are learned by
        leave-one-out (`docs/training.md`), with fewer than 1,000 rows also the number of steps and
        a linear trend. Otherwise the prediction is one Gaussian.
    outside : {"widen", "clip", "unrelated", "error"}, default="widen"
        Treatment of rows outside the training box, the range of each feature. "widen": the mean of
        the nearest row of the box; the deviation grows with the distance from the border, by
        feature and in proportion to what the feature explains, and passes that of y. "clip": the
        prediction at the nearest row of the box. "unrelated": mean and deviation of y. "error": a
        ValueError. Models that are not calibrated read "widen" as "clip". With "widen", the first
        prediction of many or far rows outside warns.
    weights : {"frequency", "precision"}, default="frequency"
        Meaning of `sample_weight`. "frequency": a weight c is c observations with this target. If
        rows at the same features practically never differ, neither weights nor repeated rows are
        independent observations. Each group then counts as one observation. Weights, scaled to
        mean 1, only pull the mean, and `fit` warns. "precision": a weight c divides the noise
        variance of one observation by c; weights are scaled to mean 1.
    time_budget : float, optional
        Seconds for `fit`, from its beginning to the calibration; no limit by default. Time for the
        solve on all rows and for the calibration is reserved. If time is short, there are fewer
        training rows and steps, the calibration learns from fewer rows, and the solve ends at a
        larger residual. A ConvergenceWarning says what was left out. `fit` can take 20 % or 2
        seconds longer, and more if a few products with all rows do.
    on_interrupt : {"raise", "keep"}, default="raise"
        Whether Ctrl-C during `fit` raises KeyboardInterrupt, or keeps the best found so far. With
        "keep", the first Ctrl-C ends training, and the model is finished. The second finishes it at
        once, with a less accurate solve or fewer members. A third within 2 seconds of the second
        raises KeyboardInterrupt. With verbose=1 each is answered on stderr; a ConvergenceWarning
        follows at the end.
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
        result is the same to rounding. A fitted model lies in the host's memory and predicts on
        the CPU.
    n_jobs : int or None, default=-1
        Threads; -1 is all cores, None is one. The result does not depend on it.
    verbose : int, default=0
        1 shows progress bars.
    random_state : int, RandomState, Generator or None, default=None
        Source of random numbers, for grids, orders, rows and probes.

    Attributes
    ----------
    forests_ : tuple of FittedForest
        One per target.
    encoders_ : tuple of BitEncoder
        Box, percentiles and precision, without shift; one per scaling.
    target_mean_, target_scale_ : float64 (n_targets,)
        Mean and standard deviation by which targets are standardised.
    log_marginal_likelihood_ : float or float64 (n_targets,)
        Log marginal likelihood of the training targets in their own units: exact up to 2,000 rows,
        otherwise estimated.
    log_marginal_likelihood_error_ : float or float64 (n_targets,)
        Standard error of that estimate; 0 if it is exact.
    loo_score_ : float
        Mean leave-one-out log density of the training targets in their own units.
    loo_variance_error_ : float
        Relative standard error of leave-one-out variances; 0 if they are exact.
    one_dimensional_ : bool
        Whether y was passed as a vector.
    stopped_early_ : bool
        Whether the time budget or Ctrl-C ended training, or something was left out.
    diverged_ : bool
        Whether training stopped because the likelihood fell or solves failed. `fit` then issues a
        ConvergenceWarning and keeps the best parameters found before.
    n_evaluations_ : int
        Evaluations of the likelihood's gradient, over all targets.
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
    A product with the kernel matrix is O(n T). `fit` takes some hundreds of them on the training
    rows of the stages and some tens on all rows. Means are O(T log n) per row. Leave-one-out is
    exact up to 2,000 rows; beyond, its variances have a relative standard error of 18 % (27 % from
    10,000 rows on, 41 % from 60,000). Variances from samples depend, within their error, on which
    rows are predicted together. latent=True predicts the function, with its posterior variance.
    Each target has its own forest. Peak memory for 25,600 rows of 8 features was 380 MiB,
    prediction included.
    """

    _by_var = False
    _format = calibrated(PartFormat("forest", pack_forest, unpack_forest))

    def __init__(
        self,
        *,
        n_trees: int = 64,
        init: str = "even",
        slope: float = 1.5,
        scaling: str = "both",
        precision: Any = 8,
        max_iter: int = 40,
        train_rows: int = 5_000,
        variance: str = "auto",
        variance_error: float = 0.2,
        calibrated: bool = True,
        outside: str = "widen",
        weights: str = "frequency",
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
        self.init = init
        self.slope = slope
        self.scaling = scaling
        self.precision = precision
        self.max_iter = max_iter
        self.train_rows = train_rows
        self.variance = variance
        self.variance_error = variance_error
        self.calibrated = calibrated
        self.outside = outside
        self.weights = weights
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
        """One per target; waiting rows are inserted first."""
        return tuple(cast(FittedForest, base_of(part)) for part in self._inserted().fitted)

    @property
    def diverged_(self) -> bool:
        """Whether training stopped because the likelihood fell or solves failed."""
        check_is_fitted(self)
        return any(base_of(part).diverged for part in self._stream.fitted)

    @property
    def n_iter_(self) -> int:
        """Optimiser steps of the target that took most; at least 1."""
        check_is_fitted(self)
        return max(1, *(int(base_of(part).n_steps) for part in self._stream.fitted))

    @property
    def log_marginal_likelihood_error_(self) -> Any:
        """Standard error of `log_marginal_likelihood_`; 0 if it is exact."""
        errors = [part.evidence.error for part in self.forests_]
        return errors[0] if self.one_dimensional_ else np.array(errors)

    @property
    def loo_variance_error_(self) -> float:
        """Relative standard error of leave-one-out variances; 0 if they are exact."""
        n_samples = diagonal_samples(self.forests_[0].model.forest.n_rows)
        return float(np.sqrt(2.0 / (n_samples - 4.0))) if n_samples else 0.0

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "_stream"):
            return text
        models = [base_of(part).model for part in self._stream.fitted]
        trees = count_of(len(models[0].orders), "tree") + " each" * (len(models) > 1)
        noise = [float(model.new_noise) for model in models]
        return f"<{text} fitted: {self._describe(trees, noise)}>"

    def _settings(self) -> Settings:
        return check_settings(
            Settings(
                n_trees=self.n_trees,
                init=self.init,
                slope=self.slope,
                scaling=self.scaling,
                precision=self.precision,
                max_iter=self.max_iter,
                train_rows=self.train_rows,
                variance=self.variance,
                variance_error=self.variance_error,
                calibrated=self.calibrated,
            )
        )

    def _encoders(self, rows: Rows, settings: Settings) -> tuple[BitEncoder, ...]:
        return fit_encoders(
            rows.features,
            rows.weight,
            scaling=settings.scaling,
            precision=settings.precision,
            outside=self.outside,
        )

    def _variants(self, settings: Settings) -> list[tuple[Settings, Settings]]:
        if not settings.calibrated:
            return []
        few = max(4, settings.n_trees // N_FOLDS)
        steps = sorted({settings.max_iter, settings.max_iter // 4, 0}, reverse=True)
        return [
            (
                replace(settings, max_iter=n),
                replace(settings, max_iter=n, n_trees=min(few, settings.n_trees)),
            )
            for n in steps
        ]

    def _train(
        self, encoders: tuple[BitEncoder, ...], rows: Rows, settings: Settings, run: Run
    ) -> Trained:
        trained = train_forest(encoders, rows, settings, run)
        fitted = cast(FittedForest, trained.fitted)
        if fitted.diverged:
            warnings.warn(
                f"training stopped after {fitted.n_steps} steps because the likelihood fell or "
                "solves failed; the best parameters found are kept",
                ConvergenceWarning,
                stacklevel=5,
            )
        return trained

    def _importances(self) -> list[Importances]:
        check_is_fitted(self)
        return [self._shares(part, 0) for part in self.forests_]

    def _shares(self, fitted: FittedForest, column: int) -> Importances:
        return forest_importances(fitted.model)
