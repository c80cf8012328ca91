"""Prediction methods of the estimators."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.calibration.model import CalibratedModel, base_of, place_model
from triegp.checks import random_generator, whole_number
from triegp.devices import like, on_device, to_host
from triegp.encoding.columns import Columns, check_width
from triegp.encoding.layout import read_working, refuse_unseen
from triegp.encoding.reading import check_finite
from triegp.encoding.tables import is_named_frame, read_table
from triegp.engines import CpuEngine
from triegp.estimators import units
from triegp.estimators.draws import (
    FunctionDraws,
    evaluate_functions,
    name_unseen,
    prepare_functions,
)
from triegp.estimators.fitted import FittedEstimator
from triegp.estimators.inputs import check_targets
from triegp.estimators.new_rows import NewRows, any_unseen, lay_out
from triegp.estimators.outside import describe, find_outside, is_unusual, mark_outside
from triegp.estimators.units import Target
from triegp.models.distribution import (
    PredictiveDistribution,
    check_quantiles,
    interval_quantiles,
)
from triegp.models.draws import function_seeds
from triegp.models.interface import Fitted
from triegp.models.state import Stream
from triegp.models.transformed import TransformedDistribution

Floats = npt.NDArray[np.float64]

DEVICE_TYPES = tuple(map(np.dtype, "fdbBhHiIlL?"))  # of arrays on the host that a device can read


class Predictor(FittedEstimator):
    """Predictions, densities and samples of a fitted estimator.

    X may be an array on a device (CuPy, PyTorch, or any type with DLPack or CUDA's array
    interface). Predictions are returned as the same kind of array on that device. If the model
    lies on the device, X stays there; otherwise it is copied to the host.
    """

    outside: str
    _told: set[str]  # warnings that are given once per fitted model

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, latent: bool = False
    ) -> Any:
        """Mean of new observations, and their standard deviation or covariance.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        return_std, return_cov : bool, default=False
            Whether to return standard deviations or the covariance matrix too; not both.
        latent : bool, default=False
            Whether to predict the function instead of a new observation, which includes noise.

        Returns
        -------
        mean : float64 (m,) or (m, n_targets)
            Mean.
        std : float64 (m,) or (m, n_targets)
            Standard deviation, if return_std.
        cov : float64 (m, m) or (m, m, n_targets)
            Covariance, if return_cov. Raises ValueError if a target is transformed.

        Notes
        -----
        The mean alone costs O(m) per tree; variances are then not computed. Memory is O(m), except
        for the covariance matrix. With a `target_transform` the mean needs variances, too. It is
        then the mean of y, not T^-1 of a mean; `TransformedDistribution` says how long tails enter.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov must not both be True")
        data, targets = self._read_new_rows(X, joint=return_cov)
        if return_cov and any(target.transform is not None for target in targets):
            raise ValueError(
                "return_cov requires target_transform='identity', got transformed targets: draw "
                "joint samples by sample_y instead"
            )
        if not (return_std or return_cov):
            return like(self._shape(units.predict_mean(targets, data, latent=latent)), X)
        work = units.predict_covariance if return_cov else units.predict_moments
        mean, spread = zip(*work(targets, data, latent=latent), strict=True)
        return like(self._shape(mean), X), like(self._shape(spread), X)

    def predict_distribution(
        self, X: Any, *, latent: bool = False
    ) -> (
        PredictiveDistribution
        | TransformedDistribution
        | list[PredictiveDistribution | TransformedDistribution]
    ):
        """Predictive distribution at new rows; a list with one per target if y was 2-dimensional.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        latent : bool, default=False
            Whether to predict the function instead of a new observation, which includes noise.

        Returns
        -------
        PredictiveDistribution or list of PredictiveDistribution
            A mixture of Gaussians at each row, with methods `mean`, `std`, `quantile`, `interval`,
            `cdf`, `pdf`, `log_prob` and `sample`. Its arrays lie in the host's memory. For a
            transformed target, a TransformedDistribution with the same methods.

        Notes
        -----
        Takes O(K m) memory for K components. The other methods work in blocks of rows.
        """
        data, targets = self._read_new_rows(X)
        found = units.predict_distribution(targets, data, latent=latent)
        return found[0] if self.one_dimensional_ else found

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), *, latent: bool = False
    ) -> Any:
        """Quantiles of new observations.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        quantiles : float or array-like (k,), default=(0.05, 0.5, 0.95)
            Probabilities, strictly between 0 and 1.
        latent : bool, default=False
            Whether to predict the function instead of a new observation, which includes noise.

        Returns
        -------
        float64 (m, k) or (m, k, n_targets)
            Quantiles; k is 1 for a single number.
        """
        q = check_quantiles(quantiles)
        data, targets = self._read_new_rows(X)
        found = units.predict_quantiles(targets, data, q, latent=latent)
        return like(self._shape(found), X)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, latent: bool = False) -> Any:
        """Central interval that contains a new observation with probability `coverage`.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        coverage : float, default=0.9
            Probability, strictly between 0 and 1.
        latent : bool, default=False
            Whether to predict the function instead of a new observation, which includes noise.

        Returns
        -------
        float64 (m, 2) or (m, 2, n_targets)
            Lower and upper end.
        """
        return self.predict_quantiles(X, interval_quantiles(coverage), latent=latent)

    def predict_groups(self, X: Any, groups: Any) -> tuple[Any, Any]:
        """Mean of the function, and its joint covariances within many small groups of rows.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        groups : array-like of int (g, q)
            Indices of the rows of each group.

        Returns
        -------
        mean : float64 (m,) or (m, n_targets)
            Mean, as `predict(X, latent=True)` returns it.
        cov : float64 (g, q, q) or (g, q, q, n_targets)
            Covariance within each group, as `predict(X, return_cov=True, latent=True)` has it.

        Notes
        -----
        O(K (n + m + g q^2)) for a mixture of K trees: one pass for all groups. `TrieGPRegressor`
        solves once per row of X, as for the covariance matrix. Raises ValueError if a target is
        transformed, or if a value is unseen.
        """
        data, targets = self._read_new_rows(X, joint=True)
        if any(target.transform is not None for target in targets):
            raise ValueError(
                "covariances require target_transform='identity', got transformed targets: draw "
                "functions by sample_functions instead"
            )
        chosen = np.asarray(groups)
        if chosen.ndim != 2 or chosen.dtype.kind not in "iu":
            raise ValueError(f"groups must be integers (g, q), got {chosen.dtype} {chosen.shape}")
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < data.n_rows):
            raise ValueError(f"groups must be indices of the {data.n_rows} rows of X")
        host = CpuEngine()
        targets = [replace(one, fitted=place_model(one.fitted, host)) for one in targets]
        rows = replace(data, seen=to_host(data.seen))
        parts = units.predict_groups(targets, rows, chosen.astype(np.int64))
        mean, cov = zip(*parts, strict=True)
        return self._shape(mean), self._shape(cov)

    def log_density(self, X: Any, y: Any) -> Any:
        """Log predictive density of new observations y, (m,) or (m, n_targets), at rows X.

        It is -inf for y outside the domain of a `target_transform`.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        y : array-like (m,) or (m, n_targets)
            Observations at these rows.
        """
        data, targets = self._read_new_rows(X)
        observed = self._read_targets(y, data.n_rows)
        return like(self._shape(units.predict_log_density(targets, data, observed)), X)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Any:
        """Joint samples of new observations.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        n_samples : int, default=1
            Number of samples.
        random_state : int, RandomState, Generator or None, default=0
            Source of random numbers.
        latent : bool, default=False
            Whether to sample the function instead of new observations, which include noise.

        Returns
        -------
        float64 (m, n_samples) or (m, n_targets, n_samples)
            Each sample is one function, evaluated at all rows. Noise and components of the tails
            are drawn independently for each row.
        """
        data, targets = self._read_new_rows(X, joint=True)
        n_samples = whole_number("n_samples", n_samples)
        rng = random_generator(random_state)
        out = units.sample(targets, data, n_samples, rng, latent=latent)
        return like(out[0] if self.one_dimensional_ else np.stack(out, axis=1), X)

    def _twin(self, **parameters: Any) -> Self:
        """A copy of the fitted model with other parameters, in O(1): models are shared.

        Rows that are added to one of them do not reach the other.
        """
        self._inserted()
        twin = type(self).__new__(type(self))
        with self._lock:
            twin.__dict__.update(self.__dict__, _told=set(self._told))
        twin._make_lock()
        twin.__dict__.pop("_summary", None)
        twin.__dict__.update(parameters)
        return twin

    def sample_functions(self, n_functions: int = 1, random_state: Any = 0) -> FunctionDraws:
        """Draw functions from the posterior, which can be evaluated anywhere and later.

        Each is one joint draw of the latent function. At distinct rows, it is distributed as
        `sample_y` with latent=True. Its value at a row depends on that row only, to the last bit.

        Parameters
        ----------
        n_functions : int, default=1
            Number of functions.
        random_state : int, RandomState, Generator or None, default=0
            Source of random numbers. With the same integer, the same model gives the same
            functions.

        Returns
        -------
        FunctionDraws
            A sequence of callables f(X) that return float64 (m,) or (m, n_targets), in the units of
            y. The sequence itself can be called, too: it evaluates all functions at once, (m,
            n_functions) or (m, n_targets, n_functions).

        Notes
        -----
        O(1) per function for `BinaryTreeGPRegressor`, and O(m D) per function to evaluate m rows,
        with trees of depth D. `TrieGPRegressor` solves for each function once; O(n T) memory per
        function for T trees. Functions are those of the model as it is now: rows that are added
        later do not change them. They lie on the host. `docs/draws.md` says which parts are exact.
        """
        n_functions = whole_number("n_functions", n_functions)
        rng = random_generator(random_state)
        seed = int(rng.integers(2**64, dtype=np.uint64))
        stream = self._inserted()
        host = CpuEngine()
        fitted = tuple(place_model(part, host) for part in stream.fitted)
        twin = self._twin()  # parameters may be changed later, models are not
        twin._stream = replace(stream, fitted=fitted, kept=None)
        seeds = function_seeds(seed, 0, n_functions)
        return FunctionDraws(twin, seeds, prepare_functions(twin._targets(twin._stream), seeds))

    def _evaluate_draws(self, X: Any, seeds: npt.NDArray[np.uint64], parts: Sequence[Any]) -> Any:
        """Values of functions at new rows, (m, k) or (m, n_targets, k), on the host."""
        stream = self._stream
        data, columns = self._read_features(X, stream)
        rows, targets = self._lay_out(data, stream)
        unseen = name_unseen(stream.layout, data, columns)
        out = evaluate_functions(targets, parts, seeds, rows, unseen)
        return out[0] if self.one_dimensional_ else np.stack(out, axis=1)

    def outside_box(self, X: Any) -> npt.NDArray[np.bool_]:
        """Whether each row lies outside the training box, (m,).

        The box is the range of each feature over the rows that the model was last fitted to. Rows
        with gaps or categories that these rows do not have are outside, too.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        """
        stream = self._inserted()
        data, _ = self._read_features(X, stream)
        working, unseen = read_working(stream.layout, data)
        return mark_outside(stream.encoders[0], working) | any_unseen(unseen)

    # Internal

    def _read_features(self, X: Any, stream: Stream) -> tuple[npt.NDArray[Any], Columns]:
        """New rows as an array on the host, and the columns with categories that are new.

        Checks names and number of columns. Columns of a frame are found by name.
        """
        X, known = to_host(X), stream.columns
        data, columns = read_table(X, self, known)
        if known.names is None or not is_named_frame(X):
            self._check_features(X, data.shape[1])
        check_finite(data, known.names, missing=True)
        return data, columns

    def _check_features(self, X: Any, n_columns: int) -> None:
        """Raise ValueError unless new rows have the columns of the training rows."""
        check_width(n_columns, len(self._stream.columns.kinds), self)

    def _read_targets(self, y: Any, n_rows: int) -> Floats:
        """Targets of new rows, (n_rows, n_targets)."""
        targets = check_targets(to_host(y))
        n_targets = self._stream.mean.size
        if targets.shape != (n_rows, n_targets):
            raise ValueError(
                f"y must have {n_rows} rows and {n_targets} targets, got shape {np.shape(y)}"
            )
        return targets

    def _read_new_rows(self, X: Any, *, joint: bool = False) -> tuple[NewRows, list[Target]]:
        """New rows to predict, and the targets that predict them, of the same stream.

        joint: whether more than the distribution at each row is asked for. Warns, once per fitted
        model, if many or far rows lie outside.
        """
        stream = self._placed() if joint else self._looking_ahead(_count_rows(X))
        data = self._hold_features(X, stream)
        if data is None:
            data, _ = self._read_features(X, stream)
        return self._lay_out(data, stream)

    def _lay_out(self, data: Any, stream: Stream) -> tuple[NewRows, list[Target]]:
        """`_read_new_rows` of the columns of a table, as `_read_features` returns them."""
        if self.outside == "error" and not on_device(data):
            refuse_unseen(stream.layout, data, stream.columns.names)
        rows, targets = lay_out(stream.layout, data), self._targets(stream)
        if self.outside != "widen" or "outside" in self._told:
            return rows, targets
        found = find_outside(stream.encoders[0], rows.seen)
        if is_unusual(found, stream.n_rows, data.shape[1]):
            self._told.add("outside")
            found = found._replace(columns=np.unique(stream.layout.source[found.columns]))
            said = describe(found, getattr(self, "feature_names_in_", None))
            warnings.warn(f"{said}: {_beyond_the_box(stream.fitted)}", UserWarning, stacklevel=4)
        return rows, targets

    def _hold_features(self, X: Any, stream: Stream) -> Any:
        """New rows on the device of the models, or None if they have to be read on the host.

        That is the case if a model lies on the host, if X is not an array of numbers, if columns
        are not numbers without gaps, and if a value is not finite.
        """
        if any(part.on_host for part in stream.fitted):
            return None
        if not (stream.columns.plain and stream.layout.plain):
            return None
        if not (on_device(X) or isinstance(X, np.ndarray)) or isinstance(X, np.ma.MaskedArray):
            return None
        if len(X.shape) != 2 or X.shape[0] == 0 or X.shape[1] != stream.layout.n_columns:
            return None
        if isinstance(X, np.ndarray) and X.dtype not in DEVICE_TYPES:
            return None
        self._check_features(X, X.shape[1])
        data = base_of(stream.fitted[0]).engine.hold(X)
        if data.dtype.kind not in "fiub":
            return None
        data = data.astype(np.float64, copy=False)
        return data if np.isfinite(data).all() else None


def _count_rows(X: Any) -> int:
    """Number of new rows; X is not checked yet."""
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return len(X) if hasattr(X, "__len__") else 1


def _beyond_the_box(fitted: Sequence[Fitted]) -> str:
    """What models predict for rows outside the box, for a warning."""
    said = []
    if any(part.goes_on for part in fitted):
        said.append("the smooth part goes on, and intervals widen with the distance")
    ending = [part for part in fitted if not part.goes_on]
    if ending:
        where = " of targets without smooth part" if said else ""
        widens = isinstance(ending[0], CalibratedModel)
        said.append(
            f"means{where} stay those of the border, and intervals "
            + ("widen with the distance" if widens else "too, as the model is not calibrated")
        )
    return "; ".join(said)
