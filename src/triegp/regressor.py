"""The estimator: scikit-learn's manners on top of a trained ensemble of trees."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp import predictive
from triegp.archive import pack_model, unpack_model
from triegp.callbacks import HAS_CALLBACKS, CallbackSupportMixin, FitTasks, with_callbacks
from triegp.encoding import OUTSIDE, BitEncoder, real_array
from triegp.ensemble import Ensemble
from triegp.files import write_file
from triegp.fitting import (
    Manner,
    check_manner,
    fit_encoders,
    group_targets,
    random_generator,
    train_targets,
)
from triegp.importance import Importances, importances
from triegp.mixture import Mixture
from triegp.predictive import Target
from triegp.presets import TUNABLE, Settings, settings_of
from triegp.streaming import Stream, check_batch, queue_batch, settle
from triegp.targets import (
    TrainingRows,
    check_known_noise,
    check_targets,
    check_weight,
    location_and_scale,
    standardise,
)
from triegp.validation import float_array, one_of, positive_number, whole_number

Floats = npt.NDArray[np.float64]

_changing = threading.Lock()  # of any model's rows: questions may come from many threads


class BinaryTreeGPRegressor(
    CallbackSupportMixin,  # type: ignore[misc]
    MultiOutputMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
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
    observation, noise included; latent=True is the function itself.
    """

    encoders_: tuple[BitEncoder, ...]
    target_mean_: Floats
    target_scale_: Floats
    one_dimensional_: bool
    stopped_early_: bool
    _stream: Stream
    _summary: tuple[Any, Any, float]  # the ensembles, and what they say of themselves

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
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None) -> Self:
        """Train the ensemble.

        Parameters
        ----------
        X : array-like (n_rows, n_features)
            Finite numbers.
        y : array-like (n_rows,) or (n_rows, n_targets)
            Finite numbers.
        sample_weight : array-like (n_rows,), optional
            Non-negative; an integer weight equals repeating the row.
        known_noise : array-like (n_rows,), optional
            Known variance of each row's target, in units of y squared.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} requires y to be passed, but the target y is None")
        return self._fit(X, y, sample_weight, known_noise)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, latent: bool = False
    ) -> Any:
        """Mean of new observations, and their standard deviation or covariance.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        return_std, return_cov : bool
            Whether to return deviations (m,) or the matrix (m, m) too; with several targets
            (m, n_targets) and (m, m, n_targets).
        latent : bool
            Whether to describe the function instead of a new observation of it.

        Returns
        -------
        mean : float64 (m,) or (m, n_targets)
        std or cov, if asked for

        Notes
        -----
        O(K m) for K members. Mean-only prediction does no work for variances; memory is O(m) unless
        the matrix is asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov must not both be True")
        data = self._rows(X)
        if not (return_std or return_cov):
            means = [predictive.predict_mean(t, data, latent=latent) for t in self._targets()]
            return self._shape(means)
        work = predictive.predict_covariance if return_cov else predictive.predict_moments
        mean, spread = zip(*(work(t, data, latent=latent) for t in self._targets()), strict=True)
        return self._shape(mean), self._shape(spread)

    def predict_distribution(self, X: Any, *, latent: bool = False) -> Mixture | list[Mixture]:
        """The predictive distribution: a mixture of Gaussians at every row, one for each target.

        One Gaussian a member, and a last one for observations that stray, where there are any.
        """
        data = self._rows(X)
        mixtures = [predictive.predict_units(t, data, latent=latent) for t in self._targets()]
        return mixtures[0] if self.one_dimensional_ else mixtures

    def predict_quantiles(
        self, X: Any, levels: Any = (0.05, 0.5, 0.95), *, latent: bool = False
    ) -> Any:
        """Quantiles of new observations, (m, len(levels)) or (m, len(levels), n_targets)."""
        levels = float_array("levels", levels).ravel()
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"levels must lie between 0 and 1, got {levels}")
        data = self._rows(X)
        work = predictive.predict_quantiles
        return self._shape([work(t, data, levels, latent=latent) for t in self._targets()])

    def predict_interval(self, X: Any, coverage: float = 0.9, *, latent: bool = False) -> Any:
        """Central interval that holds a new observation with probability `coverage`, (m, 2)."""
        if not 0 < positive_number("coverage", coverage) < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}")
        tail = 0.5 * (1.0 - coverage)
        return self.predict_quantiles(X, (tail, 1.0 - tail), latent=latent)

    def log_density(self, X: Any, y: Any) -> Any:
        """Log density of new observations, (m,) or (m, n_targets)."""
        data = self._rows(X)
        targets = self._check_targets(y, data.shape[0])
        columns = zip(self._targets(), targets.T, strict=True)
        return self._shape([predictive.predict_log_density(t, data, y) for t, y in columns])

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Any:
        """Joint samples of new observations, (m, n_samples) or (m, n_targets, n_samples).

        Each sample is drawn exactly from one member, drawn by weight; an observation that strays is
        drawn by itself. O((n + m) K + m n_samples).
        """
        data = self._rows(X)
        n_samples = whole_number("n_samples", n_samples)
        rng = random_generator(random_state)
        out = [predictive.draw(t, data, n_samples, rng, latent=latent) for t in self._targets()]
        return out[0] if self.one_dimensional_ else np.stack(out, axis=1)

    def loo_predict(self) -> tuple[Any, Any]:
        """Mean and deviation of each training target, given all other rows; no refit. O(n K)."""
        check_is_fitted(self)
        mean, std = zip(*map(predictive.loo_moments, self._targets()), strict=True)
        return self._shape(mean), self._shape(std)

    def loo_log_density(self) -> Any:
        """Log density of each training target, given all other rows; no refit. O(n K)."""
        check_is_fitted(self)
        return self._shape([predictive.loo_log_density(t) for t in self._targets()])

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add rows exactly: as if the same orders and weights had seen all rows from the start.

        Box, percentiles, target scale, noise and mixture weights stay as fitted. On an estimator
        that is not fitted this is `fit`. The rows are checked now, at O(k) for k rows, and added
        before the next question is answered, all that wait together: O(n + k log k) a member.
        """
        if not hasattr(self, "_stream"):
            return self.fit(X, y, sample_weight, known_noise)
        data = self._rows(X)
        targets = self._check_targets(y, data.shape[0])
        weight = check_weight(sample_weight, data.shape[0])
        known = check_known_noise(known_noise, data.shape[0])
        batch = TrainingRows.copy(data, targets, weight, known)
        unit = (self.target_mean_, self.target_scale_)
        check_batch(batch, self._stream.ensembles, self.encoders_, *unit)
        with _changing:
            self._stream = queue_batch(self._stream, batch)
        return self

    @property
    def ensembles_(self) -> tuple[Ensemble, ...]:
        """One a target, or one for all; all rows added."""
        return self._settled().ensembles

    @property
    def rows_(self) -> TrainingRows | None:
        """The training rows, or None if they were not kept."""
        return self._settled().kept

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Of the training targets in their own units, averaged over the members by weight."""
        return self._summarise()[0]

    @property
    def loo_score_(self) -> float:
        """Mean leave-one-out log density of the training targets in their own units."""
        return self._summarise()[1]

    @property
    def n_iter_(self) -> int:
        """Likelihoods with gradient that the longest fit took; a step takes one or more."""
        check_is_fitted(self)
        members = [member for part in self._stream.ensembles for member in part.members]
        return max(member.fit.n_evaluations for member in members)

    def refresh(self) -> Self:
        """Fit anew on all rows seen: new box, new percentiles, new orders."""
        check_is_fitted(self)
        if self.rows_ is None:
            raise ValueError(
                "refresh needs the training rows, and this model does not have them: fit with "
                "keep_rows=True, and save with training_data=True"
            )
        rows = self.rows_
        y = rows.targets[:, 0] if self.one_dimensional_ else rows.targets
        names = getattr(self, "feature_names_in_", None)
        return self._fit(rows.X, y, rows.weight, rows.known_noise, names)

    @property
    def feature_importances_(self) -> Floats:
        """Share of explained variance by feature, (n_features,) or (n_features, n_targets)."""
        return self._shape([part.explained for part in self._importances()])

    @property
    def importances_(self) -> Importances | list[Importances]:
        """Shares of prior and explained variance, by feature and by bit; one a target."""
        parts = self._importances()
        return parts[0] if self.one_dimensional_ else parts

    def save(self, path: str | Path, *, training_data: bool = False) -> None:
        """Write the fitted model to a file, whole or not at all; `triegp.load` reads it.

        Parameters
        ----------
        path : str or Path
            A file that is there is replaced in one step.
        training_data : bool
            Whether to store the training rows too, which `refresh` needs after loading.

        Notes
        -----
        Needs safetensors (`pip install 'triegp[files]'`). A `random_state` that is no integer is
        stored as None.
        """
        check_is_fitted(self)
        header, arrays = pack_model(self, training_data)
        write_file(path, header, arrays)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    @classmethod
    def _from_file(
        cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
    ) -> BinaryTreeGPRegressor:
        model = cls(**header["parameters"])
        unpack_model(model, header, arrays)
        return model

    # How it is done

    def _settings(self) -> tuple[Settings, Manner]:
        """The parameters, checked."""
        one_of("outside", self.outside, OUTSIDE)
        if not isinstance(self.keep_rows, bool | np.bool_):
            raise ValueError(f"keep_rows must be True or False, got {self.keep_rows!r}")
        manner = Manner(**{field.name: getattr(self, field.name) for field in fields(Manner)})
        settings = settings_of(self.preset, {name: getattr(self, name) for name in TUNABLE})
        return settings, check_manner(manner)

    @with_callbacks
    def _fit(
        self, X: Any, y: Any, sample_weight: Any, known_noise: Any, feature_names: Any = None
    ) -> Self:
        """Train on rows that may have lost their names; nothing is set before all is done."""
        settings, manner = self._settings()
        data = real_array(X, self)
        targets, one_dimensional = check_targets(y)
        if data.shape[0] != targets.shape[0]:
            raise ValueError(
                f"X and y must have the same number of rows, got {data.shape[0]}, "
                f"{targets.shape[0]}"
            )
        weight = check_weight(sample_weight, data.shape[0])
        encoders = fit_encoders(X, weight, settings, self.outside)
        if feature_names is not None:
            for encoder in encoders:
                encoder.feature_names_in_ = feature_names
        mean, scale = location_and_scale(targets, weight)
        known = check_known_noise(known_noise, data.shape[0])
        rows = TrainingRows(data, targets, weight, known)
        if self.keep_rows:
            rows = TrainingRows.copy(data, targets, weight, known)
        n_ensembles = len(group_targets(targets.shape[1], manner.multi_target))
        tasks = FitTasks(self, data, y, settings.n_members * n_ensembles)
        trained, ended_by = train_targets(
            encoders, data, standardise(rows, mean, scale), settings, manner, tasks
        )
        self.encoders_, self.target_mean_, self.target_scale_ = encoders, mean, scale
        self.one_dimensional_ = one_dimensional
        self._stream = Stream(
            tuple(part.ensemble for part in trained), rows if self.keep_rows else None
        )
        self.n_evaluations_ = sum(part.n_evaluations for part in trained)
        self.stopped_early_ = any(part.stopped for part in trained)
        self.n_features_in_ = encoders[0].n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(encoders[0], "feature_names_in_"):
            self.feature_names_in_ = encoders[0].feature_names_in_
        if self.stopped_early_:
            warnings.warn(
                f"training was ended by {ended_by}; the best found so far is kept",
                ConvergenceWarning,
                stacklevel=4 if HAS_CALLBACKS else 3,  # the decorator is a call of its own
            )
        tasks.end()
        return self

    def _rows(self, X: Any) -> npt.NDArray[Any]:
        """New rows as an array; names and number of columns checked."""
        check_is_fitted(self)
        data = real_array(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return data

    def _check_targets(self, y: Any, n_rows: int) -> Floats:
        """Targets of new rows, (n_rows, n_targets)."""
        targets, _ = check_targets(y)
        if targets.shape != (n_rows, self.target_mean_.size):
            raise ValueError(
                f"y must have {n_rows} rows and {self.target_mean_.size} targets, got shape "
                f"{np.shape(y)}"
            )
        return targets

    def _settled(self) -> Stream:
        """What was learned, the rows that wait added first."""
        check_is_fitted(self)
        if self._stream.waiting:
            with _changing:
                self._stream = settle(self._stream, self.target_mean_, self.target_scale_)
        return self._stream

    def _targets(self) -> list[Target]:
        """Every target with its ensemble, its column there and its units."""
        ensembles = self.ensembles_
        shared = len(ensembles) == 1
        return [
            Target(ensembles[0 if shared else t], t if shared else 0, mean, scale)
            for t, (mean, scale) in enumerate(
                zip(self.target_mean_.tolist(), self.target_scale_.tolist(), strict=True)
            )
        ]

    def _summarise(self) -> tuple[Any, float]:
        """Log marginal likelihood and leave-one-out score; O(n K) when first asked."""
        ensembles = self.ensembles_
        if not hasattr(self, "_summary") or self._summary[0] is not ensembles:
            evidence = [predictive.log_marginal_likelihood(t) for t in self._targets()]
            density = sum(predictive.loo_log_density(t) for t in self._targets())
            weight = ensembles[0].members[0].posteriors[0].rows.weight
            score = float(np.average(density, weights=weight))
            said = evidence[0] if self.one_dimensional_ else np.array(evidence)
            self._summary = ensembles, said, score
        return self._summary[1:]

    def _importances(self) -> list[Importances]:
        check_is_fitted(self)
        return [importances(target.ensemble, target.column) for target in self._targets()]

    def _shape(self, values: Sequence[Floats]) -> Floats:
        """One array a target as the targets came: alone, or stacked along the last axis."""
        return values[0] if self.one_dimensional_ else np.stack(values, axis=-1)
