"""The estimator for a forest: a sum of trees as one Gaussian process."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from triegp.additive.fitted import FittedForest
from triegp.additive.model import VARIANCES
from triegp.additive.model import Manner as VarianceManner
from triegp.additive.start import STARTS
from triegp.additive.train import ForestPlan, forest_card_bytes, train_forest
from triegp.additive.variance import diagonal_samples
from triegp.additive.walk import Schedule
from triegp.checks import one_of, positive_number, whole_number
from triegp.encoding.encoder import BitEncoder
from triegp.engines import CpuEngine
from triegp.engines.blas import one_blas_thread
from triegp.engines.choice import choose
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.importances import Importances, ImportancesMixin, forest_importances
from triegp.estimators.parameters import Manner, Run, check_manner, fit_encoders
from triegp.files.forest import pack_forest, unpack_forest
from triegp.files.model import PartFormat
from triegp.mixture import Ensemble, card_bytes, recipe_of, train_ensemble
from triegp.mixture.settings import SCALINGS, settings_of
from triegp.models.contract import Data, Trained
from triegp.models.rows import Rows
from triegp.tree.observations import measure

Floats = npt.NDArray[np.float64]

PRESET_MEMBERS = 16  # single trees trained for the start "trained"
SOLVED_COLUMNS = 16  # about as many right-hand sides are solved at once: each is a tree's work


@dataclass(frozen=True)
class ForestSettings:
    """Parameters of a `ForestGPRegressor`, checked."""

    plan: ForestPlan
    scaling: str
    precision: Any


class ForestGPRegressor(ImportancesMixin, TreeGPRegressor):
    """Gaussian-process regression with a sum of binary trees as kernel.

    y = f_1(x) + ... + f_T(x) + noise, every f_t a binary tree GP on a grid of its own: one Gaussian
    process whose kernel is the sum of the trees'. One tree is piecewise constant on one grid; a sum
    over shifted grids is nearly smooth. Orders, weights and noise are learned inside the sum by
    stochastic gradients of the marginal likelihood; see `docs/forest.md`.

    Parameters
    ----------
    n_trees : int, default=64
        Trees in the sum, T.
    start : {"even", "random", "trained"}, default="even"
        Orders to begin with. "even": a feature's bits by the width of their cells, features in a
        random order for every tree. "random": features shuffled anew at every depth. "trained":
        the orders of 16 single trees trained first, each on several grids.
    slope : float, default=1.5
        How fast the variance falls with the width of the cells in the start "even"; learned on.
    scaling : {"minmax", "ecdf", "both"}, default="both"
        As in `BitEncoder`; "both" gives the trees one and the other in turns.
    precision : "auto", "paper", int or array-like (n_features,), default=8
        As in `BitEncoder`.
    max_iter : int, default=40
        Steps of training, and a quarter of that on more rows; 0 learns nothing but the scale.
    train_rows : int, default=5000
        Rows that training looks at first, drawn at random; in the end at most four times as many.
        The model is conditioned on all rows whatever this is.
    variance : {"auto", "exact", "samples", "cheap"}, default="auto"
        How variances are found: by one solve a row, from samples, by whichever of the two costs
        less, or in one pass from the trees alone, calibrated on leave-one-out. As fitted: a change
        afterwards has no effect.
    variance_error : float, default=0.2
        Relative standard error of variances from samples, the same at every row: 2 / error^2
        samples are drawn.
    calibrated : bool, default=True
        Whether the tails of new observations are learned by leave-one-out; otherwise they are
        Gaussian.
    outside : {"clip", "unrelated", "error"}, default="clip"
        What becomes of rows outside the training box: moved to its border, unrelated to all
        training rows, or refused.
    time_budget : float, optional
        Seconds after which training ends with the best found so far (and a ConvergenceWarning);
        the solve on all rows comes on top.
    on_interrupt : {"raise", "keep"}, default="raise"
        What Ctrl-C does to a fit: end it, or keep the best found so far.
    keep_rows : bool, default=True
        Whether to keep a copy of the training rows, which `refresh` needs.
    engine : {"auto", "cpu", "cuda"}, default="auto"
        Where training runs. "cuda" is a CUDA device, with the extra `triegp[cuda]`, and an error
        where that is not to be had; "auto" is the same where it is and the work is large, otherwise
        the CPU (`docs/engine.md`). The result is the same to rounding. A fitted model lives in the
        host's memory, and predicts on the CPU.
    n_jobs : int, optional
        Threads; -1 (the default) is all cores. The result does not depend on it.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None
        Draws grids, orders, rows and probes.

    Attributes
    ----------
    forests_ : tuple of FittedForest
        One a target.
    encoders_ : tuple of BitEncoder
        The box, its percentiles and precision, without shift: one a scaling.
    target_mean_, target_scale_ : float64 (n_targets,)
        How targets are standardised.
    log_marginal_likelihood_ : float or float64 (n_targets,)
        Of the training targets in their own units: exact up to 2,000 rows, else estimated.
    log_marginal_likelihood_error_ : float or float64 (n_targets,)
        Standard error of that estimate; 0 where it is exact.
    loo_score_ : float
        Mean leave-one-out log density of the training targets in their own units.
    loo_variance_error_ : float
        Relative standard error of leave-one-out variances; 0 where they are exact.
    stopped_early_ : bool
        Whether time budget or Ctrl-C ended training.
    diverged_ : bool
        Whether training was given up because the likelihood fell or solves failed (with a
        ConvergenceWarning); the best state before is kept.
    n_iter_ : int
        Steps that the longest training took.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import ForestGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 2))
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = ForestGPRegressor(n_trees=16, max_iter=10, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.25, 0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 3 * std[0])
    True

    Notes
    -----
    Every product with the kernel is O(n T); a fit takes some hundreds of them on few rows and some
    tens on all. Means are O(T log n) a row. Leave-one-out is exact up to 2,000 rows, beyond it its
    variances have a relative standard error of 18 % (27 % from 10,000 rows on, 41 % from 60,000).
    A deviation from samples depends on which rows are asked together, within its error. Tails scale
    observations, not the function (`latent=True`). Rows of weight 0 are left out, and their
    leave-one-out predictions are NaN. Each target has a forest of its own. 25,600 rows of 8
    features took 380 MiB at their highest, prediction included.
    """

    _format = PartFormat("forest", pack_forest, unpack_forest)

    def __init__(
        self,
        *,
        n_trees: int = 64,
        start: str = "even",
        slope: float = 1.5,
        scaling: str = "both",
        precision: Any = 8,
        max_iter: int = 40,
        train_rows: int = 5_000,
        variance: str = "auto",
        variance_error: float = 0.2,
        calibrated: bool = True,
        outside: str = "clip",
        time_budget: float | None = None,
        on_interrupt: str = "raise",
        keep_rows: bool = True,
        engine: str = "auto",
        n_jobs: int | None = -1,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_trees = n_trees
        self.start = start
        self.slope = slope
        self.scaling = scaling
        self.precision = precision
        self.max_iter = max_iter
        self.train_rows = train_rows
        self.variance = variance
        self.variance_error = variance_error
        self.calibrated = calibrated
        self.outside = outside
        self.time_budget = time_budget
        self.on_interrupt = on_interrupt
        self.keep_rows = keep_rows
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @property
    def forests_(self) -> tuple[FittedForest, ...]:
        """One a target; all rows added."""
        return cast(tuple[FittedForest, ...], self._settled().fitted)

    @property
    def diverged_(self) -> bool:
        """Whether training was given up, and the best state before kept."""
        check_is_fitted(self)
        return any(part.diverged for part in cast(tuple[FittedForest, ...], self._stream.fitted))

    @property
    def n_iter_(self) -> int:
        """Steps that the longest training took."""
        check_is_fitted(self)
        forests = cast(tuple[FittedForest, ...], self._stream.fitted)
        return max(max(part.n_steps for part in forests), 1)

    @property
    def log_marginal_likelihood_error_(self) -> Any:
        """Standard error of `log_marginal_likelihood_`; 0 where it is exact."""
        errors = [part.evidence.error for part in self.forests_]
        return errors[0] if self.one_dimensional_ else np.array(errors)

    @property
    def loo_variance_error_(self) -> float:
        """Relative standard error of leave-one-out variances; 0 where they are exact."""
        n_samples = diagonal_samples(self.forests_[0].model.forest.n_rows)
        return float(np.sqrt(2.0 / (n_samples - 4.0))) if n_samples else 0.0

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "_stream"):
            return text
        models = [part.model for part in cast(tuple[FittedForest, ...], self._stream.fitted)]
        noise = np.mean([model.new_noise for model in models])
        return (
            f"<{text} fitted: {models[0].n_rows:,} rows, {len(models[0].orders)} trees, "
            f"noise {noise:.3g} of the variance>"
        )

    # What is trained

    def _manner(self) -> Manner:
        own = {f.name: getattr(self, f.name) for f in fields(Manner) if f.name != "multi_target"}
        return check_manner(Manner(multi_target="own", **own))

    def _settings(self) -> ForestSettings:
        one_of("start", self.start, STARTS)
        one_of("scaling", self.scaling, SCALINGS)
        one_of("variance", self.variance, VARIANCES)
        if not isinstance(self.calibrated, bool | np.bool_):
            raise ValueError(f"calibrated must be True or False, got {self.calibrated!r}")
        n_rows, steps = whole_number("train_rows", self.train_rows), self.max_iter
        steps = whole_number("max_iter", steps, 0)
        error = positive_number("variance_error", self.variance_error)
        if not 0.001 <= error < 1:
            raise ValueError(f"variance_error must lie between 0.001 and 1, got {error}")
        plan = ForestPlan(
            n_trees=whole_number("n_trees", self.n_trees),
            start=self.start,
            slope=positive_number("slope", self.slope),
            stages=((n_rows, steps), (4 * n_rows, -(-steps // 4))),
            schedule=Schedule(steps),
            calibrated=bool(self.calibrated),
            manner=VarianceManner(self.variance, error),
        )
        return ForestSettings(plan, self.scaling, self.precision)

    def _encoders(
        self, X: Any, weight: Floats | None, settings: ForestSettings
    ) -> tuple[BitEncoder, ...]:
        return fit_encoders(
            X,
            weight,
            scaling=settings.scaling,
            precision=settings.precision,
            outside=self.outside,
            margin=0.0,
        )

    def _n_fits(self, settings: ForestSettings) -> int:
        return 1

    def _train(
        self,
        settings: ForestSettings,
        encoders: tuple[BitEncoder, ...],
        X: Data,
        rows: Rows,
        run: Run,
    ) -> Trained:
        (column,) = rows.columns()
        measured = measure(n_rows=X.shape[0], **column)
        n_rows, plan = X.shape[0], settings.plan
        work = n_rows * plan.n_trees * SOLVED_COLUMNS
        room = forest_card_bytes(encoders, plan.n_trees, n_rows)
        recipe = recipe_of(settings_of("default", {"n_members": PRESET_MEMBERS}), rows.n_effective)
        if plan.start == "trained":
            room = max(room, card_bytes(encoders, recipe, n_rows, 1))
        engine = choose(run.engine, work, run.n_jobs, room)
        trained: list[Any] = []
        with one_blas_thread():
            if plan.start == "trained":
                found = train_ensemble(
                    encoders,
                    X,
                    rows,
                    recipe,
                    run.rng,
                    run.n_jobs,
                    run.watch,
                    _quiet,
                    run.keep,
                    engine,
                ).fitted
                members = cast(Ensemble, found).members
                trained = [(member.encoder, member.order) for member in members]
            grown = train_forest(
                encoders,
                X,
                measured,
                plan,
                run.rng,
                engine,
                run.watch,
                run.progress,
                trained,
                run.keep,
                host=CpuEngine(n_threads=run.n_jobs),
            )
        run.progress("fits", 1, 1)
        stages = grown.stages
        fitted = FittedForest(
            grown.model,
            tuple(look for stage in stages for look in stage.nll_per_row),
            sum(stage.n_steps for stage in stages),
            any(stage.diverged for stage in stages),
        )
        if fitted.diverged:
            worst = max(stage.worst_residual for stage in stages)
            warnings.warn(
                f"training was given up after {fitted.n_steps} steps, since the likelihood fell or "
                f"solves failed (largest relative residual {worst:.2g}); the best state is kept",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Trained(fitted, grown.stopped, fitted.n_steps)

    def _importances(self) -> list[Importances]:
        check_is_fitted(self)
        return [forest_importances(part.model) for part in self.forests_]


def _quiet(stage: str, done: int, total: int) -> None:
    """Progress of the trees to start from, which is not told: their fits are not the forest's."""
