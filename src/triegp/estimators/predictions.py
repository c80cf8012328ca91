"""What a fitted estimator answers: scikit-learn's way to ask, for anything `Fitted`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp.checks import float_array, positive_number, whole_number
from triegp.devices import like, to_host
from triegp.encoding.encoder import BitEncoder, real_array
from triegp.estimators import units
from triegp.estimators.parameters import random_generator
from triegp.estimators.units import Target
from triegp.models.distribution import Mixture
from triegp.models.rows import TrainingRows, check_targets
from triegp.models.streaming import Stream, changing, settle

Floats = npt.NDArray[np.float64]


class Predictor:
    """Predictions, densities, samples and leave-one-out of a fitted estimator.

    Rows may lie on a device (CuPy, PyTorch, anything with DLPack or CUDA's array interface): they
    are copied to the host, and arrays of predictions come back as the same kind on the same device.

    Attributes
    ----------
    encoders_ : tuple of BitEncoder
        The box, its percentiles and precision, without shift: one a scaling.
    target_mean_, target_scale_ : float64 (n_targets,)
        How targets are standardised.
    one_dimensional_ : bool
        Whether y came as one vector.
    """

    encoders_: tuple[BitEncoder, ...]
    target_mean_: Floats
    target_scale_: Floats
    one_dimensional_: bool
    _stream: Stream
    _summary: tuple[Any, Any, float]  # what was fitted, and what it says of itself

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
        Mean-only prediction is O(m) a tree and does no work for variances; memory is O(m) unless
        the matrix is asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov must not both be True")
        data = self._rows(X)
        if not (return_std or return_cov):
            means = [units.predict_mean(t, data, latent=latent) for t in self._targets()]
            return like(self._shape(means), X)
        work = units.predict_covariance if return_cov else units.predict_moments
        mean, spread = zip(*(work(t, data, latent=latent) for t in self._targets()), strict=True)
        return like(self._shape(mean), X), like(self._shape(spread), X)

    def predict_distribution(self, X: Any, *, latent: bool = False) -> Mixture | list[Mixture]:
        """The predictive distribution: a mixture of Gaussians at every row, one for each target.

        What the Gaussians are, the estimator says: members and strays, or tails. In the host's
        memory, wherever the rows are.
        """
        data = self._rows(X)
        mixtures = [units.predict_units(t, data, latent=latent) for t in self._targets()]
        return mixtures[0] if self.one_dimensional_ else mixtures

    def predict_quantiles(
        self, X: Any, levels: Any = (0.05, 0.5, 0.95), *, latent: bool = False
    ) -> Any:
        """Quantiles of new observations, (m, len(levels)) or (m, len(levels), n_targets)."""
        levels = float_array("levels", levels).ravel()
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"levels must lie between 0 and 1, got {levels}")
        data = self._rows(X)
        work = units.predict_quantiles
        found = [work(t, data, levels, latent=latent) for t in self._targets()]
        return like(self._shape(found), X)

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
        found = [units.predict_log_density(t, data, y) for t, y in columns]
        return like(self._shape(found), X)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Any:
        """Joint samples of new observations, (m, n_samples) or (m, n_targets, n_samples).

        The rows of a sample belong together: one function, drawn at all of them. Noise, and whether
        an observation strays, are drawn for each by itself.
        """
        data = self._rows(X)
        n_samples = whole_number("n_samples", n_samples)
        rng = random_generator(random_state)
        out = [units.draw(t, data, n_samples, rng, latent=latent) for t in self._targets()]
        return like(out[0] if self.one_dimensional_ else np.stack(out, axis=1), X)

    def loo_predict(self) -> tuple[Any, Any]:
        """Mean and deviation of each training target, given all other rows; no refit."""
        check_is_fitted(self)
        mean, std = zip(*map(units.loo_moments, self._targets()), strict=True)
        return self._shape(mean), self._shape(std)

    def loo_log_density(self) -> Any:
        """Log density of each training target, given all other rows; no refit."""
        check_is_fitted(self)
        return self._shape([units.loo_log_density(t) for t in self._targets()])

    @property
    def rows_(self) -> TrainingRows | None:
        """The training rows, or None if they were not kept."""
        return self._settled().kept

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Of the training targets in their own units, (n_targets,) if y came as columns."""
        return self._summarise()[0]

    @property
    def loo_score_(self) -> float:
        """Mean leave-one-out log density of the training targets in their own units."""
        return self._summarise()[1]

    # How it is done

    def _rows(self, X: Any) -> npt.NDArray[Any]:
        """New rows as an array; names and number of columns checked."""
        check_is_fitted(self)
        X = to_host(X)
        data = real_array(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return data

    def _check_targets(self, y: Any, n_rows: int) -> Floats:
        """Targets of new rows, (n_rows, n_targets)."""
        targets, _ = check_targets(to_host(y))
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
            with changing:
                self._stream = settle(self._stream, self.target_mean_, self.target_scale_)
        return self._stream

    def _targets(self) -> list[Target]:
        """Every target with the model that holds it, its column there and its units."""
        fitted = self._settled().fitted
        shared = len(fitted) == 1
        return [
            Target(fitted[0 if shared else t], t if shared else 0, mean, scale)
            for t, (mean, scale) in enumerate(
                zip(self.target_mean_.tolist(), self.target_scale_.tolist(), strict=True)
            )
        ]

    def _summarise(self) -> tuple[Any, float]:
        """Log marginal likelihood and leave-one-out score; worked out when first asked."""
        fitted = self._settled().fitted
        if not hasattr(self, "_summary") or self._summary[0] is not fitted:
            evidence = [units.log_marginal_likelihood(t) for t in self._targets()]
            density = np.sum([units.loo_log_density(t) for t in self._targets()], axis=0)
            _, weight = fitted[0].observed(0)
            if weight is not None:  # rows of weight 0 may have no prediction
                density, weight = density[weight > 0], weight[weight > 0]
            score = float(np.average(density, weights=weight))
            said = evidence[0] if self.one_dimensional_ else np.array(evidence)
            self._summary = fitted, said, score
        return self._summary[1:]

    def _shape(self, values: Sequence[Floats]) -> Floats:
        """One array a target as the targets came: alone, or stacked along the last axis."""
        return values[0] if self.one_dimensional_ else np.stack(values, axis=-1)
