"""The estimator: scikit-learn's manners on top of a trained ensemble of trees."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from triegp.archive import pack_model, unpack_model
from triegp.encoding import BitEncoder
from triegp.engines import available_cores
from triegp.ensemble import Ensemble, Recipe, Rows, loo_mixture, predict_mixture, train
from triegp.files import write_file
from triegp.importance import Importances, importances
from triegp.jobs import Stopwatch
from triegp.joint import Joint, dense_covariance, draw_samples, joint_mean, joint_posterior
from triegp.mixture import Mixture, log_density, mixture_mean, mixture_var, quantiles
from triegp.posterior import insert, log_evidence
from triegp.presets import TUNABLE, Settings, settings_of
from triegp.progress import progress_bar
from triegp.targets import (
    TrainingRows,
    check_targets,
    check_weight,
    count_rows,
    location_and_scale,
    standard_noise,
)
from triegp.training import MAX_DENSE_BITS, Plan
from triegp.validation import float_array, one_of, positive_number

Floats = npt.NDArray[np.float64]


class BinaryTreeGPRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
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
    mixture : {"stacking", "softmax", "best"}, optional
        Weights of the members: those that maximise the leave-one-out density; a softmax of the
        training nll a row; or all on the member with the lowest.
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

    ensembles_: tuple[Ensemble, ...]
    encoders_: tuple[BitEncoder, ...]
    rows_: TrainingRows | None
    target_mean_: Floats
    target_scale_: Floats
    one_dimensional_: bool
    stopped_early_: bool

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
        settings = self._settings()
        targets, self.one_dimensional_ = check_targets(y)
        weight = check_weight(sample_weight, targets.shape[0])
        self.encoders_ = self._fit_encoders(X, targets.shape[0], weight, settings)
        first = self.encoders_[0]
        self.n_features_in_ = first.n_features_in_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        n_bits = max(encoder.n_bits_ for encoder in self.encoders_)
        if settings.optimizer == "bfgs" and n_bits > MAX_DENSE_BITS:
            raise ValueError(
                f"optimizer 'bfgs' keeps a q x q matrix and must have at most {MAX_DENSE_BITS} "
                f"bits, got {n_bits}: use 'lbfgs' or less precision"
            )
        return self._train(X, targets, weight, known_noise, settings)

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
        O(K m) for K members. Mean-only prediction does no work for variances; memory is O(K m)
        unless the matrix is asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov must not both be True")
        if return_cov:
            moments = [self._covariance(X, t, latent) for t in range(self._n_targets)]
            mean, cov = (np.stack(part, axis=-1) for part in zip(*moments, strict=True))
            return self._shape(mean), cov[..., 0] if self.one_dimensional_ else cov
        mixtures = self._mixtures(X, var=return_std, latent=latent)
        mean = np.stack([mixture_mean(mixture) for mixture in mixtures], axis=-1)
        if not return_std:
            return self._shape(mean)
        std = np.stack([np.sqrt(mixture_var(mixture)) for mixture in mixtures], axis=-1)
        return self._shape(mean), self._shape(std)

    def predict_distribution(self, X: Any, *, latent: bool = False) -> Mixture | list[Mixture]:
        """The predictive distribution: a mixture of Gaussians at every row, one for each target."""
        mixtures = self._mixtures(X, var=True, latent=latent)
        return mixtures[0] if self.one_dimensional_ else mixtures

    def predict_quantiles(
        self, X: Any, levels: Any = (0.05, 0.5, 0.95), *, latent: bool = False
    ) -> Any:
        """Quantiles of new observations, (m, len(levels)) or (m, len(levels), n_targets)."""
        levels = float_array("levels", levels).ravel()
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"levels must lie between 0 and 1, got {levels}")
        mixtures = self._mixtures(X, var=True, latent=latent)
        return self._shape(np.stack([quantiles(mixture, levels) for mixture in mixtures], axis=-1))

    def predict_interval(self, X: Any, coverage: float = 0.9, *, latent: bool = False) -> Any:
        """Central interval that holds a new observation with probability `coverage`, (m, 2)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}")
        tail = 0.5 * (1.0 - coverage)
        return self.predict_quantiles(X, (tail, 1.0 - tail), latent=latent)

    def log_density(self, X: Any, y: Any) -> Any:
        """Log density of new observations, (m,) or (m, n_targets)."""
        mixtures = self._mixtures(X, var=True, latent=False)
        targets, _ = check_targets(y)
        if targets.shape != (mixtures[0].mean.shape[1], self._n_targets):
            raise ValueError(
                f"y must have {mixtures[0].mean.shape[1]} rows and {self._n_targets} targets, got "
                f"shape {np.shape(y)}"
            )
        columns = [log_density(mix, targets[:, t]) for t, mix in enumerate(mixtures)]
        return self._shape(np.stack(columns, axis=-1))

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Any:
        """Joint samples of new observations, (m, n_samples) or (m, n_targets, n_samples).

        Each sample is drawn exactly from one member, drawn by weight. O((n + m) K + m n_samples).
        """
        check_is_fitted(self)
        if isinstance(n_samples, bool) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
        rng = _generator(random_state)
        out = [self._sample(X, t, n_samples, rng, latent) for t in range(self._n_targets)]
        return out[0] if self.one_dimensional_ else np.stack(out, axis=1)

    def loo_predict(self) -> tuple[Any, Any]:
        """Mean and deviation of each training target, given all other rows; no refit. O(n K)."""
        mixtures = self._loo_mixtures()
        mean = np.stack([mixture_mean(mixture) for mixture in mixtures], axis=-1)
        std = np.stack([np.sqrt(mixture_var(mixture)) for mixture in mixtures], axis=-1)
        return self._shape(mean), self._shape(std)

    def loo_log_density(self) -> Any:
        """Log density of each training target, given all other rows; no refit. O(n K)."""
        columns = [
            log_density(mixture, self._training_target(t))
            for t, mixture in enumerate(self._loo_mixtures())
        ]
        return self._shape(np.stack(columns, axis=-1))

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add rows exactly: as if the same orders and weights had seen all rows from the start.

        Box, percentiles, target scale, noise and mixture weights stay as fitted. On an estimator
        that is not fitted this is `fit`. O(n + k log k) a member for k new rows.
        """
        if not hasattr(self, "ensembles_"):
            return self.fit(X, y, sample_weight, known_noise)
        targets, _ = check_targets(y)
        if targets.shape[1] != self._n_targets:
            raise ValueError(f"y must have {self._n_targets} targets, got {targets.shape[1]}")
        standard = (targets - self.target_mean_) / self.target_scale_
        known = standard_noise(known_noise, targets.shape[0], self.target_scale_)
        ensembles = []
        for index, ensemble in enumerate(self.ensembles_):
            which = self._targets_of(index)
            members = []
            for member in ensemble.members:
                codes = member.encoder.encode(X)
                grown = tuple(
                    insert(
                        posterior,
                        codes,
                        standard[:, t],
                        known_noise=None if known is None else known[:, t],
                        sample_weight=sample_weight,
                    )
                    for posterior, t in zip(member.posteriors, which, strict=True)
                )
                members.append(replace(member, posteriors=grown))
            ensembles.append(replace(ensemble, members=tuple(members)))
        self.ensembles_ = tuple(ensembles)
        if self.rows_ is not None:
            self.rows_ = self.rows_.append(X, targets, sample_weight, known_noise)
        self._summarise()
        return self

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
        return self.fit(rows.X, y, rows.weight, rows.known_noise)

    @property
    def feature_importances_(self) -> Floats:
        """Share of explained variance by feature, (n_features,) or (n_features, n_targets)."""
        parts = [part.explained for part in self._importances()]
        return np.asarray(self._shape(np.stack(parts, axis=-1)))

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
        if not hasattr(self, "ensembles_"):
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
        model._summarise()
        return model

    # How it is done

    @property
    def _n_targets(self) -> int:
        check_is_fitted(self)
        return int(self.target_mean_.size)

    def _settings(self) -> Settings:
        one_of("outside", self.outside, ("clip", "unrelated", "error"))
        one_of("multi_target", self.multi_target, ("own", "shared"))
        one_of("on_interrupt", self.on_interrupt, ("raise", "keep"))
        if self.time_budget is not None:
            positive_number("time_budget", self.time_budget)
        return settings_of(self.preset, {name: getattr(self, name) for name in TUNABLE})

    def _fit_encoders(
        self, X: Any, n_rows: int, weight: Floats | None, settings: Settings
    ) -> tuple[BitEncoder, ...]:
        """One encoder for each scaling, without shift."""
        scalings = ("minmax", "ecdf") if settings.scaling == "both" else (settings.scaling,)
        encoders = tuple(
            BitEncoder(
                scaling=scaling,
                precision=settings.precision,
                outside=self.outside,
                margin=settings.box_margin,
            )
            for scaling in scalings
        )
        n_given = count_rows(X)
        if n_given is not None and n_given != n_rows:
            raise ValueError(f"X and y must have the same number of rows, got {n_given}, {n_rows}")
        return tuple(encoder.fit(X, sample_weight=weight) for encoder in encoders)

    def _train(
        self,
        X: Any,
        targets: Floats,
        weight: Floats | None,
        known_noise: Any,
        settings: Settings,
    ) -> Self:
        n_rows, n_targets = targets.shape
        self.target_mean_, self.target_scale_ = location_and_scale(targets, weight)
        standard = (targets - self.target_mean_) / self.target_scale_
        known = standard_noise(known_noise, n_rows, self.target_scale_)
        n_effective = n_rows if weight is None else float(weight.sum())
        recipe = Recipe(
            plan=Plan(
                n_candidates=settings.n_candidates,
                last_weights=settings.last_weights,
                optimizer=settings.optimizer,
                max_iter=settings.max_iter,
                tolerance=settings.tolerance,
                learn_scale=settings.learn_scale,
                nugget=settings.nugget,
            ),
            n_members=settings.n_members,
            own_grids=settings.shift,
            mixture=settings.mixture,
            temperature=settings.temperature,
            noise=settings.noise,
            final_noise=1.0 / n_effective if settings.final_noise is None else settings.final_noise,
        )
        groups = [list(range(n_targets))]
        if self.multi_target == "own":
            groups = [[t] for t in range(n_targets)]
        watch = Stopwatch(self.time_budget)
        streams = _generator(self.random_state).spawn(len(groups))
        ensembles = []
        for group, stream in zip(groups, streams, strict=True):
            rows = Rows(standard[:, group], None if known is None else known[:, group], weight)
            ensembles.append(
                train(
                    self.encoders_,
                    X,
                    rows,
                    recipe,
                    stream,
                    _n_threads(self.n_jobs),
                    watch,
                    progress_bar(self.verbose),
                )
            )
        if watch.interrupted and self.on_interrupt == "raise":
            raise KeyboardInterrupt
        self.ensembles_ = tuple(ensembles)
        self.stopped_early_ = watch.stop and not all(
            member.fit.converged for ensemble in ensembles for member in ensemble.members
        )
        if self.stopped_early_:
            why = "Ctrl-C" if watch.interrupted else f"time_budget of {self.time_budget} s"
            warnings.warn(
                f"training was ended by {why}; the best found so far is kept",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.rows_ = None
        if self.keep_rows:
            self.rows_ = TrainingRows.copy(X, targets, weight, known_noise)
        self._summarise()
        return self

    def _summarise(self) -> None:
        """What the fitted model says of itself."""
        members = [member for ensemble in self.ensembles_ for member in ensemble.members]
        self.n_evaluations_ = sum(member.fit.n_evaluations for member in members)
        evidence = []
        for t in range(self._n_targets):
            ensemble, column = self._ensemble(t)
            values = np.array([log_evidence(m.posteriors[column]) for m in ensemble.members])
            posterior = ensemble.members[0].posteriors[column]
            count = (
                posterior.n_rows if posterior.rows.weight is None else posterior.rows.weight.sum()
            )
            evidence.append(
                float(ensemble.weight[column] @ values) - count * np.log(self.target_scale_[t])
            )
        self.log_marginal_likelihood_ = evidence[0] if self.one_dimensional_ else np.array(evidence)
        weight = self.ensembles_[0].members[0].posteriors[0].rows.weight
        density = np.asarray(self.loo_log_density()).reshape(-1, self._n_targets).sum(axis=1)
        self.loo_score_ = float(np.average(density, weights=weight))

    def _ensemble(self, target: int) -> tuple[Ensemble, int]:
        """The ensemble of a target, and its column there."""
        if len(self.ensembles_) == 1:
            return self.ensembles_[0], target
        return self.ensembles_[target], 0

    def _targets_of(self, index: int) -> list[int]:
        return list(range(self._n_targets)) if len(self.ensembles_) == 1 else [index]

    def _units(self, mixture: Mixture, target: int) -> Mixture:
        """A standardised mixture in the units of y."""
        mean, scale = self.target_mean_[target], self.target_scale_[target]
        return Mixture(mixture.weight, mean + scale * mixture.mean, scale**2 * mixture.var)

    def _mixtures(self, X: Any, *, var: bool, latent: bool) -> list[Mixture]:
        out = []
        for t in range(self._n_targets):
            ensemble, column = self._ensemble(t)
            mixture = predict_mixture(ensemble, X, column, var=var, latent=latent)
            out.append(self._units(mixture, t))
        return out

    def _loo_mixtures(self) -> list[Mixture]:
        out = []
        for t in range(self._n_targets):
            ensemble, column = self._ensemble(t)
            mixture = loo_mixture(ensemble.members, ensemble.weight[column], column)
            out.append(self._units(mixture, t))
        return out

    def _training_target(self, target: int) -> Floats:
        ensemble, column = self._ensemble(target)
        y = ensemble.members[0].posteriors[column].rows.y
        return np.asarray(self.target_mean_[target] + self.target_scale_[target] * y)

    def _joints(self, X: Any, target: int) -> tuple[list[Joint], list[float], Floats]:
        """Joint distributions of the members that count, their noise and weights."""
        ensemble, column = self._ensemble(target)
        used = np.flatnonzero(ensemble.weight[column] > 0)
        posteriors = [ensemble.members[k].posteriors[column] for k in used]
        joints = [
            joint_posterior(posterior, ensemble.members[k].encoder.encode(X))
            for k, posterior in zip(used, posteriors, strict=True)
        ]
        noise = [posterior.new_noise for posterior in posteriors]
        return joints, noise, ensemble.weight[column, used]

    def _covariance(self, X: Any, target: int, latent: bool) -> tuple[Floats, Floats]:
        joints, noise, weight = self._joints(X, target)
        means = np.stack([joint_mean(joint) for joint in joints])
        mean = weight @ means
        cov = np.zeros((mean.size, mean.size))
        for w, eps, joint, own in zip(weight, noise, joints, means, strict=True):
            cov += w * (dense_covariance(joint) + np.outer(own - mean, own - mean))
            if not latent:
                cov[np.diag_indices_from(cov)] += w * eps
        scale = self.target_scale_[target]
        return self.target_mean_[target] + scale * mean, scale**2 * cov

    def _sample(
        self, X: Any, target: int, n_samples: int, rng: np.random.Generator, latent: bool
    ) -> Floats:
        joints, noise, weight = self._joints(X, target)
        chosen = rng.choice(weight.size, size=n_samples, p=weight)
        out = np.empty((joints[0].n_points, n_samples))
        for k, (joint, eps) in enumerate(zip(joints, noise, strict=True)):
            mine = np.flatnonzero(chosen == k)
            if mine.size:
                out[:, mine] = draw_samples(joint, mine.size, rng)
                if not latent:
                    out[:, mine] += np.sqrt(eps) * rng.standard_normal((out.shape[0], mine.size))
        return np.asarray(self.target_mean_[target] + self.target_scale_[target] * out)

    def _importances(self) -> list[Importances]:
        return [importances(*self._ensemble(t)) for t in range(self._n_targets)]

    def _shape(self, values: Floats) -> Floats:
        """Values (..., n_targets) as the targets came: without the last axis for one vector."""
        return values[..., 0] if self.one_dimensional_ else values


def _generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from scikit-learn's kind of random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    seed = check_random_state(random_state).randint(0, 2**31 - 1, size=4)
    return np.random.default_rng(seed)


def _n_threads(n_jobs: int | None) -> int:
    """Threads for scikit-learn's n_jobs."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise ValueError(f"n_jobs must be a non-zero integer or None, got {n_jobs!r}")
    return n_jobs if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)
