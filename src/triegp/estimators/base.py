"""The base of the estimators: scikit-learn's manners around anything that can be trained."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from triegp.devices import to_host
from triegp.encoding.encoder import BitEncoder, real_array
from triegp.estimators.callbacks import (
    HAS_CALLBACKS,
    CallbackSupportMixin,
    FitTasks,
    with_callbacks,
)
from triegp.estimators.parameters import Manner, Run, check_manner, group_targets, train_targets
from triegp.estimators.predictions import Predictor
from triegp.files.container import write_file
from triegp.files.model import PartFormat, pack_model, unpack_model
from triegp.models.contract import Data, Trained
from triegp.models.rows import (
    Rows,
    TrainingRows,
    check_known_noise,
    check_targets,
    check_weight,
    location_and_scale,
    standardise,
)
from triegp.models.streaming import Stream, changing, check_batch, queue_batch

Floats = npt.NDArray[np.float64]


class TreeGPRegressor(
    Predictor,
    CallbackSupportMixin,  # type: ignore[misc]
    MultiOutputMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Fitting, adding rows, saving and loading; what is trained is for subclasses to say.

    A subclass has an `__init__` with its parameters, among them all fields of `Manner`; says in
    `_format` how its models lie in a file; and has four hooks, called in this order by a fit:

    * `_settings()`: its other parameters, checked, in a record that the other hooks are given;
    * `_encoders(X, weight, settings)`: fitted encoders, without shift;
    * `_n_fits(settings)`: how many fits a training counts in its stage "fits";
    * `_train(settings, encoders, X, rows, run)`: one `Fitted`, for the targets of the rows.

    Attributes
    ----------
    stopped_early_ : bool
        Whether time budget, Ctrl-C or a callback ended training.
    n_evaluations_ : int
        Likelihoods with gradient that training took.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    stopped_early_: bool
    n_evaluations_: int
    _format: ClassVar[PartFormat]

    @abstractmethod
    def _settings(self) -> Any:
        """Parameters other than those of `Manner`, checked."""

    @abstractmethod
    def _encoders(self, X: Any, weight: Floats | None, settings: Any) -> tuple[BitEncoder, ...]:
        """Fitted encoders, without shift; X as the user passed it, for the names of its columns."""

    @abstractmethod
    def _n_fits(self, settings: Any) -> int:
        """How many fits a training counts."""

    @abstractmethod
    def _train(
        self, settings: Any, encoders: tuple[BitEncoder, ...], X: Data, rows: Rows, run: Run
    ) -> Trained:
        """Train one model for all targets of the rows, in standardised units."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None) -> Self:
        """Train on rows and their targets.

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

        Notes
        -----
        Arrays on a device are copied to the host, where rows are encoded.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} requires y to be passed, but the target y is None")
        return self._fit(*map(to_host, (X, y, sample_weight, known_noise)))

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add rows exactly: as if the same orders and weights had seen all rows from the start.

        Box, percentiles, target scale, noise and mixture weights stay as fitted. On an estimator
        that is not fitted this is `fit`. The rows are checked now, at O(k) for k rows, and added
        before the next question is answered, all that wait together: O(n + k log k) a tree, and
        for a forest a solve from where the last one ended, to its tolerance.
        """
        if not hasattr(self, "_stream"):
            return self.fit(X, y, sample_weight, known_noise)
        data = self._rows(X)
        targets = self._check_targets(y, data.shape[0])
        weight = check_weight(to_host(sample_weight), data.shape[0])
        known = check_known_noise(to_host(known_noise), data.shape[0])
        batch = TrainingRows.copy(data, targets, weight, known)
        unit = (self.target_mean_, self.target_scale_)
        check_batch(batch, self._stream.fitted, self.encoders_, *unit)
        with changing:
            self._stream = queue_batch(self._stream, batch)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination, R squared, of the predicted mean."""
        return float(super().score(*map(to_host, (X, y, sample_weight))))

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        model = cls(**header["parameters"])
        unpack_model(model, header, arrays)
        return model

    def _manner(self) -> Manner:
        """The parameters that all estimators have, checked."""
        return check_manner(Manner(**{f.name: getattr(self, f.name) for f in fields(Manner)}))

    @with_callbacks
    def _fit(
        self, X: Any, y: Any, sample_weight: Any, known_noise: Any, feature_names: Any = None
    ) -> Self:
        """Train on rows that may have lost their names; nothing is set before all is done."""
        manner, settings = self._manner(), self._settings()
        data = real_array(X, self)
        targets, one_dimensional = check_targets(y)
        if data.shape[0] != targets.shape[0]:
            raise ValueError(
                f"X and y must have the same number of rows, got {data.shape[0]}, "
                f"{targets.shape[0]}"
            )
        weight = check_weight(sample_weight, data.shape[0])
        encoders = self._encoders(X, weight, settings)
        if feature_names is not None:
            for encoder in encoders:
                encoder.feature_names_in_ = feature_names
        mean, scale = location_and_scale(targets, weight)
        known = check_known_noise(known_noise, data.shape[0])
        rows = TrainingRows(data, targets, weight, known)
        if manner.keep_rows:
            rows = TrainingRows.copy(data, targets, weight, known)
        n_parts = len(group_targets(targets.shape[1], manner.multi_target))
        tasks = FitTasks(self, data, y, self._n_fits(settings) * n_parts)
        trained, ended_by = train_targets(
            lambda own, run: self._train(settings, encoders, data, own, run),
            standardise(rows, mean, scale),
            manner,
            tasks,
        )
        self.encoders_, self.target_mean_, self.target_scale_ = encoders, mean, scale
        self.one_dimensional_ = one_dimensional
        kept = rows if manner.keep_rows else None
        self._stream = Stream(tuple(part.fitted for part in trained), kept)
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
