"""Base class of the estimators: fitting, adding rows, saving and loading."""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp.calibration.folds import MOST_ROWS, cross_fit
from triegp.calibration.model import CalibratedModel
from triegp.calibration.stage import learn_stage
from triegp.checks import random_generator
from triegp.devices import to_host
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.reading import check_finite, real_array
from triegp.estimators.inputs import (
    copy_rows,
    location_and_scale,
    read_rows,
    standardise,
)
from triegp.estimators.parameters import (
    check_common,
    count_threads,
    group_targets,
    share_budget,
)
from triegp.estimators.predictions import Predictor
from triegp.estimators.repeats import Folded, fold_rows
from triegp.estimators.streaming import Stream, check_batch, queue_rows
from triegp.files.container import ModelFileError, read_file, write_file
from triegp.files.state import (
    ModelState,
    PartFormat,
    pack_model,
    plain_parameters,
    unpack_model,
    upgrade_header,
)
from triegp.models.interface import Trained
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run, progress_bars
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

Kind = TypeVar("Kind", bound="type[TreeGPRegressor]")

LEAST_COPIES = 0.01  # share of copies above which `fit` warns
ESTIMATORS: dict[str, type[TreeGPRegressor]] = {}  # by name: the classes that `load` can create


def loadable(kind: Kind) -> Kind:
    """Class decorator that registers an estimator, so that `load` can create it."""
    ESTIMATORS[kind.__name__] = kind
    return kind


class TreeGPRegressor(
    Predictor,
    MultiOutputMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Base class of the estimators: fitting, adding rows, saving and loading.

    A subclass defines an `__init__` with its parameters, which include those of `check_common`;
    `_format`, its part of the file format; and three methods, which `fit` calls in this order:

    * `_settings()` returns its other parameters, checked, as one record;
    * `_encoders(rows, settings)` returns fitted encoders, without shift;
    * `_train(encoders, rows, settings, run)` returns one model for all targets of the rows.

    Attributes
    ----------
    stopped_early_ : bool
        Whether the time budget or Ctrl-C ended training.
    n_evaluations_ : int
        Evaluations of the likelihood with gradient.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    stopped_early_: bool
    n_evaluations_: int
    weights: str
    _format: ClassVar[PartFormat]
    _by_var: ClassVar[bool]  # whether local noise may depend on the predicted variance

    @abstractmethod
    def _settings(self) -> Any:
        """Parameters other than the common ones, checked."""

    @abstractmethod
    def _encoders(self, rows: Rows, settings: Any) -> tuple[BitEncoder, ...]:
        """Fitted encoders, without shift."""

    @abstractmethod
    def _variants(self, settings: Any) -> Sequence[tuple[Any, Any]]:
        """Settings to choose from if there are few rows, each with settings of a smaller model.

        The first is `settings` itself. Nothing if the model is not to be calibrated.
        """

    @abstractmethod
    def _train(
        self, encoders: tuple[BitEncoder, ...], rows: Rows, settings: Any, run: Run
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
            Known noise variance of each row's target, in units of y squared.

        Returns
        -------
        self
            Fitted. If training fails or is interrupted, the estimator is left unchanged.

        Notes
        -----
        Arrays on a device are copied to the host. Integer weights and repeated rows give the same
        model to rounding, in any order of the rows. How repeated rows and weights are read is said
        at the parameter `weights`.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} requires y to be passed, but the target y is None")
        return self._fit(*map(to_host, (X, y, sample_weight, known_noise)))

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add training rows, with the fitted parameters unchanged.

        The posterior is that of the fitted orders, weights and noise given all rows; box,
        percentiles, target scale and mixture weights stay as fitted too. On an estimator that is
        not fitted this is `fit`, which has the same parameters.

        Notes
        -----
        The rows are checked at once, in O(k) for k rows. They are inserted before the next
        prediction, together with all other waiting rows, in O(n + k log k) per tree.
        `ForestGPRegressor` then also solves, starting from the previous solution.
        """
        if not hasattr(self, "_stream"):
            return self.fit(X, y, sample_weight, known_noise)
        data = self._read_features(X)
        targets = self._read_targets(y, data.shape[0])
        extras = map(to_host, (sample_weight, known_noise))
        batch = copy_rows(read_rows(data, targets, *extras, all_zero=True))
        unit = (self.target_mean_, self.target_scale_)
        check_batch(batch, self._stream.fitted, self.encoders_, *unit)
        with self._lock:
            self._stream = queue_rows(self._stream, batch)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination, R squared, of the predicted mean."""
        return float(super().score(*map(to_host, (X, y, sample_weight))))

    def refresh(self) -> Self:
        """Fit again from scratch on all rows passed to `fit` and `partial_fit`.

        Raises ValueError if the training rows were not kept.
        """
        check_is_fitted(self)
        if self.rows_ is None:
            raise ValueError(
                "refresh needs the training rows, which this model does not hold: fit with "
                "keep_rows=True, and save with training_data=True"
            )
        rows = self.rows_
        y = rows.y[:, 0] if self.one_dimensional_ else rows.y
        names = getattr(self, "feature_names_in_", None)
        return self._fit(rows.X, y, rows.weight, rows.known_noise, names)

    def save(self, path: str | Path, *, training_data: bool = False) -> None:
        """Write the fitted model to a file, completely or not at all; `triegp.load` reads it.

        Parameters
        ----------
        path : str or Path
            An existing file is replaced in one step.
        training_data : bool, default=False
            Whether to store the training rows too, which `refresh` needs after loading.

        Notes
        -----
        JSON and safetensors, never pickle. A `random_state` that is not an integer is stored as
        None.
        """
        check_is_fitted(self)
        if ESTIMATORS.get(type(self).__name__) is not type(self):
            raise TypeError(
                f"save writes {' and '.join(sorted(ESTIMATORS))}, got {type(self).__name__}: "
                "triegp.load could not make one; pickle it instead"
            )
        header, arrays = pack_model(self._state(), self._format, training_data)
        parameters = plain_parameters(self.get_params(deep=False))
        named = {"estimator": type(self).__name__, "parameters": parameters}
        write_file(path, named | header, arrays)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    def __dir__(self) -> list[str]:
        """Names for completion; scikit-learn's own version evaluates every attribute."""
        return list(object.__dir__(self))

    @property
    def _get_fitted_attr_html(self) -> Any:
        """Absent: notebooks would display all fitted attributes, and leave-one-out takes work."""
        raise AttributeError("fitted attributes are not part of the HTML representation")

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy: a fitted model as in a model file, with kept rows."""
        state = dict(super().__getstate__())
        if "_stream" not in state:
            return state
        packed = pack_model(self._state(), self._format, self._stream.kept is not None)
        for name in ("_stream", "_lock", "_summary", "encoders_"):
            state.pop(name, None)
        return state | {"_packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from pickle or copy; messages are computed again, to the same bits."""
        packed = state.pop("_packed", None)
        super().__setstate__(state)
        if packed is not None:
            header, arrays = packed
            self._restore(unpack_model(header, arrays, self._format))

    def _describe_rows(self) -> str:
        """Number of rows, for `repr`; does not insert waiting rows."""
        waiting = sum(batch.n_rows for batch in self._stream.waiting)
        more = f" and {waiting:,} waiting" if waiting else ""
        return f"{self._stream.n_rows:,} rows{more}"

    def _state(self) -> ModelState:
        """State of a fitted model, without its parameters; inserts waiting rows first."""
        stream = self._inserted()
        names = getattr(self, "feature_names_in_", None)
        return ModelState(
            encoders=self.encoders_,
            target_mean=self.target_mean_,
            target_scale=self.target_scale_,
            one_dimensional=self.one_dimensional_,
            stopped_early=bool(self.stopped_early_),
            n_evaluations=int(self.n_evaluations_),
            feature_names=None if names is None else [str(name) for name in names],
            fitted=stream.fitted,
            kept=stream.kept,
            observations=stream.observations,
        )

    def _restore(self, state: ModelState) -> None:
        """Set all fitted attributes."""
        self.encoders_ = state.encoders
        self.target_mean_, self.target_scale_ = state.target_mean, state.target_scale
        self.one_dimensional_ = state.one_dimensional
        self.stopped_early_ = state.stopped_early
        self.n_evaluations_ = state.n_evaluations
        self.n_features_in_ = state.encoders[0].n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if state.feature_names is not None:
            self.feature_names_in_ = np.array(state.feature_names, dtype=object)
        self.__dict__.pop("_summary", None)
        self._stream = Stream(state.fitted, state.kept, state.observations)
        self._lock = threading.Lock()

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, known_noise: Any, feature_names: Any = None
    ) -> Self:
        """Train; fitted attributes are set only at the end.

        feature_names: names of the columns, if X has lost them; by default those of X.
        """
        check_common(self.get_params(deep=False))
        settings = self._settings()
        data = real_array(X, self)
        if feature_names is None:
            feature_names = _feature_names(X)
        check_finite(data, feature_names)
        rows = read_rows(data, y, sample_weight, known_noise)
        mean, scale = location_and_scale(rows.y, rows.weight)
        folded = fold_rows(rows, self.weights, scale)
        distinct = folded.rows
        encoders = self._encoders(distinct, settings)
        for encoder in encoders if feature_names is not None else ():
            encoder.feature_names_in_ = feature_names
        if distinct.scatter is None:  # otherwise it is in the units of all rows
            mean, scale = location_and_scale(distinct.y, distinct.weight)
        kept = copy_rows(rows) if self.keep_rows else None
        trained, ended_by = self._train_targets(
            encoders, standardise(distinct, mean, scale), settings
        )
        stopped = any(part.stopped for part in trained)
        self._restore(
            ModelState(
                encoders=encoders,
                target_mean=mean,
                target_scale=scale,
                one_dimensional=np.asarray(y).ndim == 1,
                stopped_early=stopped,
                n_evaluations=sum(part.n_evaluations for part in trained),
                feature_names=None if feature_names is None else list(feature_names),
                fitted=tuple(part.fitted for part in trained),
                kept=kept,
                observations=folded.observations((rows.y - mean) / scale),
            )
        )
        _tell_copies(folded, rows.n_rows)
        if stopped:
            warnings.warn(
                f"training was ended by {ended_by}; the best found so far is kept",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _train_calibrated(
        self, encoders: tuple[BitEncoder, ...], rows: Rows, settings: Any, run: Run
    ) -> Trained:
        """Train one model for all targets of the rows, and calibrate it if it is to be."""
        variants = self._variants(settings) if rows.n_rows < MOST_ROWS else ()
        optimism = (1.0,) * rows.n_targets
        if variants:
            small = [few for _, few in variants]
            crossed = cross_fit(
                lambda few, some, own: self._train(encoders, some, few, own), small, rows, run
            )
            settings, optimism = variants[crossed.best][0], crossed.optimism
        trained = self._train(encoders, rows, settings, run)
        if trained.residuals is None:
            return trained
        stages = tuple(
            learn_stage(
                rows.features,
                trained.residuals[column],
                run,
                by_var=self._by_var,
                optimism=optimism[column],
            )
            for column in range(rows.n_targets)
        )
        return trained._replace(fitted=CalibratedModel(trained.fitted, stages))

    def _train_targets(
        self, encoders: tuple[BitEncoder, ...], rows: Rows, settings: Any
    ) -> tuple[list[Trained], str]:
        """Train one model per target, or one for all; also return what ended training early, if so.

        The rest of the time budget is shared equally by the models not trained yet.
        """
        parameters = self.get_params(deep=False)
        budget = parameters["time_budget"]
        groups = group_targets(rows.n_targets, parameters.get("multi_target", "own"))
        streams = random_generator(parameters["random_state"]).spawn(len(groups))
        began = time.monotonic()
        trained: list[Trained] = []
        ended_by = ""
        for k, (group, stream) in enumerate(zip(groups, streams, strict=True)):
            watch = Stopwatch(share_budget(budget, began, len(groups) - k))
            if ended_by:
                watch.halt()
            run = Run(
                rng=stream,
                n_threads=count_threads(parameters["n_jobs"]),
                watch=watch,
                progress=progress_bars(parameters["verbose"]),
                keep=parameters["on_interrupt"] == "keep",
                engine=parameters["engine"],
            )
            trained.append(self._train_calibrated(encoders, rows.targets(group), settings, run))
            if watch.interrupted:
                ended_by = "Ctrl-C"
        return trained, ended_by or f"time_budget of {budget} s"


def _tell_copies(folded: Folded, n_rows: int) -> None:
    """Warn if rows are copies of others."""
    if folded.n_copies < max(2.0, LEAST_COPIES * n_rows):
        return
    warnings.warn(
        f"{folded.n_copies:,} of the observations are copies of others: rows that repeat with "
        "the same target, near-twins, or sample weights above 1. Each group of copies counts as "
        "one observation of that weight; see weights= and the guide",
        UserWarning,
        stacklevel=4,
    )


def load(path: str | Path) -> TreeGPRegressor:
    """Read a model that `save` wrote; its predictions have the same bits.

    Parameters
    ----------
    path : str or Path
        The file. Nothing in it is executed.

    Returns
    -------
    TreeGPRegressor
        The fitted estimator, of the class that was saved.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is truncated, edited, not a model file, or from a newer version of triegp.
    """
    header, arrays = read_file(path)
    name = header.get("estimator")
    if not isinstance(name, str) or name not in ESTIMATORS:
        expected = ", ".join(sorted(ESTIMATORS))
        raise ModelFileError(f"{path} holds {name!r:.80}, expected one of {expected}")
    try:
        header = upgrade_header(header)
        model = ESTIMATORS[name](**header["parameters"])
        model._restore(unpack_model(header, arrays, model._format))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelFileError(f"{path} does not hold a complete model: {error!r}") from error
    return model


def _feature_names(X: Any) -> Any:
    """Names of the columns of X by the rules of scikit-learn, or None."""
    reader = BitEncoder()
    validate_data(reader, X, reset=True, skip_check_array=True)
    return getattr(reader, "feature_names_in_", None)
