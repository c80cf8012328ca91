"""The estimator for an ensemble of trees."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from triegp.encoding.encoder import BitEncoder
from triegp.engines.blas import one_blas_thread
from triegp.engines.choice import choose
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.importances import Importances, ImportancesMixin, importances
from triegp.estimators.parameters import Run, fit_encoders
from triegp.files.ensemble import pack_ensemble, unpack_ensemble
from triegp.files.model import PartFormat
from triegp.mixture import (
    Ensemble,
    card_bytes,
    check_encoders,
    recipe_of,
    train_ensemble,
)
from triegp.mixture.settings import TUNABLE, Settings, settings_of
from triegp.models.contract import Data, Trained
from triegp.models.rows import Rows

Floats = npt.NDArray[np.float64]


class BinaryTreeGPRegressor(ImportancesMixin, TreeGPRegressor):
    """Exact Gaussian-process regression with an ensemble of binary tree kernels.

    Every member is a binary tree GP with its own bit order and weights, learned by maximum
    likelihood; the prediction is the mixture of the members, a full distribution at every row.

    Parameters
    ----------
    preset : {"default", "paper-bte", "paper-bt"}, default="default"
        Where the choices below come from that are None. "paper-bte" and "paper-bt" do what the
        paper's experiments did: 480 random orders on one grid, 20 of them fitted by BFGS, mixed by
        their training nll or the best one alone.
    n_members : int, optional
        Trees in the ensemble.
    n_candidates : int, optional
        Random orders to begin with: for every member, or in all where shift is False.
    scaling : {"minmax", "ecdf", "both"}, optional
        As in `BitEncoder`; "both" gives the members one and the other in turns.
    precision : "auto", "paper", int or array-like (n_features,), optional
        As in `BitEncoder`.
    shift : bool, optional
        Whether every member has a grid of its own, shifted at random.
    outside : {"clip", "unrelated", "error"}, default="clip"
        What becomes of rows outside the training box: moved to its border, unrelated to all
        training rows, or refused.
    nugget : {"row", "bit"}, optional
        As in `BitOrder`.
    noise : float, optional
        Noise variance (its floor, with the row nugget), relative to the variance of y.
    learn_scale : bool, optional
        Whether the prior variance is learned.
    optimizer : {"lbfgs", "bfgs"}, optional
        "bfgs" keeps a q x q matrix and refuses more than 5,000 bits.
    max_iter : int, optional
        Steps of a fit at most.
    tolerance : float, optional
        Largest derivative of the nll a row at which a fit has converged.
    mixture : {"calibrated", "stacking", "softmax", "best"}, optional
        How members are mixed. "stacking": with the weights that maximise the leave-one-out density.
        "calibrated": the same, and the members' means are pulled together, their variances scaled,
        and some observations stray from all of them, as leave-one-out finds best. "softmax": of
        the training nll a row. "best": all on the member with the lowest.
    temperature : float, optional
        Of the softmax.
    multi_target : {"own", "shared"}, default="own"
        Whether each column of y trains orders and weights of its own, or all share one set.
    time_budget : float, optional
        Seconds after which training ends with the best found so far (and a ConvergenceWarning).
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
        Draws grids and candidates.

    Attributes
    ----------
    ensembles_ : tuple of Ensemble
        One a target, or one for all.
    encoders_ : tuple of BitEncoder
        The box, its percentiles and precision, without shift: one a scaling.
    target_mean_, target_scale_ : float64 (n_targets,)
        How targets are standardised.
    log_marginal_likelihood_ : float or float64 (n_targets,)
        Of the training targets in their own units, averaged over the members by weight.
    loo_score_ : float
        Mean leave-one-out log density of the training targets in their own units.
    one_dimensional_ : bool
        Whether y came as one vector.
    stopped_early_ : bool
        Whether time budget or Ctrl-C ended training.
    n_evaluations_ : int
        Likelihoods with gradient that training took.
    n_iter_ : int
        Likelihoods with gradient that the longest fit took; a step takes one or more.
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
    Training is O(n) an evaluation; see `docs/training.md`. Everything predicted describes a new
    observation, noise included; latent=True is the function itself. With K members predictions of m
    rows are O(K m), leave-one-out is O(K n). `predict_distribution` has one Gaussian a member and
    a last one for strays; a sample of `sample_y` is drawn exactly from one member, drawn by weight,
    O(K (n + m) + m n_samples).
    """

    _format = PartFormat("ensemble", pack_ensemble, unpack_ensemble)

    def __init__(
        self,
        *,
        preset: str = "default",
        n_members: int | None = None,
        n_candidates: int | None = None,
        scaling: str | None = None,
        precision: Any = None,
        shift: bool | None = None,
        outside: str = "clip",
        nugget: str | None = None,
        noise: float | None = None,
        learn_scale: bool | None = None,
        optimizer: str | None = None,
        max_iter: int | None = None,
        tolerance: float | None = None,
        mixture: str | None = None,
        temperature: float | None = None,
        multi_target: str = "own",
        time_budget: float | None = None,
        on_interrupt: str = "raise",
        keep_rows: bool = True,
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
        self.outside = outside
        self.nugget = nugget
        self.noise = noise
        self.learn_scale = learn_scale
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.mixture = mixture
        self.temperature = temperature
        self.multi_target = multi_target
        self.time_budget = time_budget
        self.on_interrupt = on_interrupt
        self.keep_rows = keep_rows
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @property
    def ensembles_(self) -> tuple[Ensemble, ...]:
        """One a target, or one for all; all rows added."""
        return cast(tuple[Ensemble, ...], self._settled().fitted)

    @property
    def n_iter_(self) -> int:
        """Likelihoods with gradient that the longest fit took; a step takes one or more."""
        check_is_fitted(self)
        ensembles = cast(tuple[Ensemble, ...], self._stream.fitted)
        return max(member.fit.n_evaluations for part in ensembles for member in part.members)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "_stream"):
            return text
        members = [member for ensemble in self.ensembles_ for member in ensemble.members]
        noise = [m.posteriors[0].new_noise for m in members]
        return (
            f"<{text} fitted: {members[0].posteriors[0].n_rows:,} rows, "
            f"{members[0].order.n_bits} bits, {len(members)} members, "
            f"noise {np.mean(noise):.3g} of the variance, "
            f"leave-one-out log density {self.loo_score_:.4f}>"
        )

    # What is trained

    def _settings(self) -> Settings:
        return settings_of(self.preset, {name: getattr(self, name) for name in TUNABLE})

    def _encoders(
        self, X: Any, weight: Floats | None, settings: Settings
    ) -> tuple[BitEncoder, ...]:
        encoders = fit_encoders(
            X,
            weight,
            scaling=settings.scaling,
            precision=settings.precision,
            outside=self.outside,
            margin=settings.box_margin,
        )
        check_encoders(encoders, settings)
        return encoders

    def _n_fits(self, settings: Settings) -> int:
        return settings.n_members

    def _train(
        self,
        settings: Settings,
        encoders: tuple[BitEncoder, ...],
        X: Data,
        rows: Rows,
        run: Run,
    ) -> Trained:
        recipe = recipe_of(settings, rows.n_effective)
        n_rows, n_targets = X.shape[0], rows.targets.shape[1]
        work = n_rows * n_targets * recipe.n_candidates
        room = card_bytes(encoders, recipe, n_rows, n_targets)
        with one_blas_thread():
            return train_ensemble(
                encoders,
                X,
                rows,
                recipe,
                run.rng,
                run.n_jobs,
                run.watch,
                run.progress,
                run.keep,
                choose(run.engine, work, run.n_jobs, room),
            )

    def _importances(self) -> list[Importances]:
        check_is_fitted(self)
        return [importances(cast(Ensemble, t.fitted), t.column) for t in self._targets()]
