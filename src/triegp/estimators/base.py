"""Base class of the estimators: fitting, adding rows, saving and loading."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp.calibration.border import Border, learn_slopes
from triegp.calibration.model import CalibratedModel, base_of, place_model
from triegp.calibration.train import train_calibrated
from triegp.checks import refuse_masked
from triegp.devices import device_work, to_host
from triegp.encoding.columns import Columns, recode, sort_categories
from triegp.encoding.encoder import BitEncoder, as_encoder
from triegp.encoding.held import held_layout
from triegp.encoding.layout import Layout, fit_layout
from triegp.encoding.quantiser import Quantiser
from triegp.encoding.reading import check_finite
from triegp.encoding.tables import read_table
from triegp.engines import CpuEngine, one_blas_thread
from triegp.estimators.far_targets import far_additions, far_targets_warning
from triegp.estimators.importances import Importances
from triegp.estimators.inputs import (
    check_targets,
    copy_rows,
    location_and_scale,
    read_rows,
    standardise,
)
from triegp.estimators.loading import ESTIMATORS, find_estimator
from triegp.estimators.memory import Memory, remember
from triegp.estimators.parameters import (
    check_common,
    count_threads,
    group_targets,
    share_budget,
)
from triegp.estimators.predictions import Predictor
from triegp.estimators.repeats import copies_warning, fold_rows
from triegp.estimators.seeds import draw_seeds, generator_of
from triegp.estimators.streaming import (
    Queued,
    check_batch,
    new_plan,
    queue_rows,
    rows_to_fit,
    stream_warnings,
)
from triegp.estimators.transform_choice import choose_by_mixtures
from triegp.estimators.transforms import (
    IDENTITY,
    Transformer,
    fit_transforms,
    refuse_known_noise,
    transform_rows,
)
from triegp.estimators.units import Target
from triegp.files.container import write_file
from triegp.files.state import pack_model, plain_parameters, unpack_model
from triegp.mixture.whole import Whole
from triegp.models.curve import TrainingCurve, join_curves
from triegp.models.interface import Trained
from triegp.models.jobs import Pool, Stopwatch
from triegp.models.pieces import Pieces
from triegp.models.repeats import Observations
from triegp.models.run import GivenUp, Run, keep_interrupts, progress_bars
from triegp.models.state import ModelState, Plan, Seed, Stream
from triegp.tree.rows import Rows, refuse_zero_weights

Floats = npt.NDArray[np.float64]

SHOWN_TARGETS = 3  # targets whose noise `repr` shows


class TreeGPRegressor(
    Predictor,
    MultiOutputMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Base class of the estimators: fitting, adding rows, saving and loading.

    A subclass defines an `__init__` with its parameters, which include those of `check_common`;
    `_kind`, the class of its models; and three methods, which `fit` calls in this order:

    * `_settings()` returns its other parameters, checked, as one record;
    * `_encoders(rows, settings, layout)` returns fitted encoders, without shift;
    * `_train(encoders, rows, settings, run)` returns one model for all targets of the rows.

    Attributes
    ----------
    stopped_early_ : bool
        Whether the time budget or Ctrl-C ended training, or something was left out.
    n_evaluations_ : int
        Evaluations of the likelihood with gradient.
    fit_seconds_ : float
        Wall-clock seconds of the last fit.
    training_curve_ : TrainingCurve or None
        Nll per row at the steps of the last fit.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    stopped_early_: bool
    n_evaluations_: int
    fit_seconds_: float
    training_curve_: TrainingCurve | None
    weights: str
    refit: Any
    categorical_features: Any = "from_dtype"
    target_transform: Any = IDENTITY  # of subclasses without this parameter
    time_budget: float | None
    n_jobs: int | None
    keep_rows: bool
    _kind: ClassVar[str]
    _by_var: ClassVar[bool]  # whether local noise may depend on the predicted variance
    _by_folds: ClassVar[bool]  # whether variances of few rows come from the models of the folds

    @abstractmethod
    def _settings(self) -> Any:
        """Parameters other than the common ones, checked."""

    @abstractmethod
    def _encoders(self, rows: Rows, settings: Any, layout: Layout) -> tuple[Quantiser, ...]:
        """Fitted encoders, without shift."""

    @abstractmethod
    def _variants(self, settings: Any) -> Sequence[tuple[Any, Any]]:
        """Settings to choose from if there are few rows, each with settings of a smaller model.

        The first is `settings` itself. Nothing if the model is not to be calibrated.
        """

    @abstractmethod
    def _shares(self, fitted: Any, column: int) -> Importances:
        """Importances of a model without its calibration, for one target."""

    @abstractmethod
    def _train(
        self,
        encoders: tuple[Quantiser, ...],
        rows: Rows,
        settings: Any,
        run: Run,
        whole: Whole | None = None,
    ) -> Trained:
        """Train one model for all targets of the rows, in standardised units.

        whole: all rows, if `rows` are some of them; only subclasses that fit by pieces get one.
        """

    def _location_and_scale(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and scale by which targets are standardised, (n_targets,) each."""
        return location_and_scale(rows.y, rows.weight)

    def _pieces(self, X: Any, y: Any, sample_weight: Any, known_noise: Any) -> Pieces | None:
        """The rows in pieces, if there are more than the model can hold; otherwise None."""
        return None

    def _check_parameters(self, *, here: bool = True) -> None:
        """Raise ValueError if a parameter is invalid.

        here: whether the model is to be trained here; RuntimeError if its engine cannot run.
        """
        check_common(self.get_params(deep=False), here=here)
        self._settings()
        self._memory()

    def _pool(self) -> Pool | None:
        """Workers elsewhere that learn orders; None to use threads."""
        return None

    def _fit_pieces(self, pieces: Pieces) -> Self:
        """Fit to rows in pieces; only subclasses whose `_pieces` returns some need it."""
        raise TypeError(f"{type(self).__name__} does not fit rows in pieces")

    def fit(self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None) -> Self:
        """Train on rows and their targets.

        Parameters
        ----------
        X : array-like (n_rows, n_features)
            A data frame or an array: numbers, categories, strings, dates, durations. NaN and None
            are missing values (`docs/tables.md`).
        y : array-like (n_rows,) or (n_rows, n_targets)
            Finite numbers.
        sample_weight : array-like (n_rows,), optional
            Non-negative. Their meaning is set by the parameter `weights`; by default, an integer
            weight equals repeating the row.
        known_noise : array-like (n_rows,), optional
            Known noise variance of each row's target, in units of y squared.

        Returns
        -------
        self
            Fitted. If training fails or is interrupted, the estimator is left unchanged. Ctrl-C
            after the model was replaced leaves the new one, whole.

        Notes
        -----
        Arrays on a device are copied to the host. Integer weights and repeated rows give the same
        model to rounding, in any order of the rows. How repeated rows and weights are read is said
        at the parameter `weights`.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} requires y to be passed, but the target y is None")
        X, y, sample_weight, known_noise = map(to_host, (X, y, sample_weight, known_noise))
        self._check_parameters()
        memory = self._memory()
        pieces = self._pieces(X, y, sample_weight, known_noise)
        if pieces is not None:
            return self._fit_pieces(pieces)
        data, columns = read_table(X, self, categorical=self.categorical_features)
        return self._fit_read(data, columns, y, sample_weight, known_noise, memory)

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add training rows.

        The posterior is that of the fitted orders, weights and noise given all rows; box,
        percentiles, target scale and mixture weights stay as fitted too, until the model is fitted
        anew (parameter `refit`). Rows outside the training box are set aside until then. On an
        estimator that is not fitted this is `fit`, which has the same parameters.

        Parameters
        ----------
        X, y, sample_weight, known_noise : array-like
            New rows, as for `fit`.

        Notes
        -----
        The rows are checked at once, in O(k) for k rows. The next prediction knows them. A mixture
        updates one path per row and tree for that, in O(D) for trees of depth D; once more rows
        wait than a 64th of those it holds, they are inserted together, in O(n + k log k) per tree.
        All methods other than predictions at new rows insert them first, and so do predictions of a
        mixture of fewer than 500 rows, with cells, with float32 messages or on a device.
        `TrieGPRegressor` inserts them before the next prediction, and then also solves, starting
        from the previous solution. A fit that is due is done before the next prediction, too. It
        uses exactly the rows that had been added when it became due, and the random numbers of the
        first fit. So predictions do not depend on when they are asked for, but for rounding errors
        of rows with the same key, and the tolerance of solves of `TrieGPRegressor`.

        A mixture with `window` or `half_life` forgets here, in steps: O(n) per tree once for many
        rows. If a fit is due that needs rows which are to be forgotten, it is done first.
        """
        if not hasattr(self, "_stream"):
            return self.fit(X, y, sample_weight, known_noise)
        targets = to_host(y)
        extras = tuple(map(to_host, (sample_weight, known_noise)))
        with self._lock:  # the next codes of new categories are given once
            batch, columns = self._read_batch(X, targets, *extras)
            plan = self._stream.plan
            if (plan.fit_at or plan.calibrate_at) and self._forgets(batch.n_rows):
                self._insert_all()  # what is due needs rows that are forgotten now
                batch, columns = self._read_batch(X, targets, *extras)
            stream = self._stream
            queued = self._queue(stream, batch)
            self._stream = replace(queued.stream, columns=columns)
            self.__dict__.pop("_summary", None)
            self._tell_stream(queued)
            if said := far_additions(batch, stream):
                warnings.warn(said, UserWarning, stacklevel=2)
            if self._stream.plan.fit_at and not (stream.layout.plain and queued.all_seen):
                self._insert_all()  # a fit may change the layout, by which later rows are judged
        return self

    def _read_batch(
        self, X: Any, y: Any, sample_weight: Any, known_noise: Any
    ) -> tuple[Rows, Columns]:
        """Check rows to add to the current models; return them, and how columns are read then."""
        stream = self._stream
        data, columns = self._read_features(X, stream)
        checked = self._read_targets(y, data.shape[0])
        batch = copy_rows(read_rows(data, checked, sample_weight, known_noise, all_zero=True))
        refuse_known_noise(self.target_transform, batch)
        read = transform_rows(batch, stream.transforms)
        check_batch(read, stream, columns.names)
        return batch, columns

    def _queue(self, stream: Stream, batch: Rows) -> Queued:
        """The stream with one more batch."""
        return queue_rows(stream, batch, refit=self.refit == "auto")

    def _memory(self) -> Memory | None:
        """How long rows are remembered, checked; None for ever."""
        return None

    def _forgets(self, n_added: int) -> bool:
        """Whether `_queue` forgets rows, or lets weights fade, when so many rows are added."""
        memory, plan = self._memory(), self._stream.plan
        return memory is not None and memory.is_due(plan.n_rows, plan.n_newest, n_added)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination, R squared, of the predicted mean.

        Parameters
        ----------
        X : array-like (m, n_features)
            New rows.
        y : array-like (m,) or (m, n_targets)
            Observations at these rows.
        sample_weight : array-like (m,), optional
            Weights of the rows in the score.
        """
        X, y, sample_weight = map(to_host, (X, y, sample_weight))
        check_targets(y)
        refuse_masked("sample_weight", sample_weight)
        return float(super().score(X, y, sample_weight))

    @property
    def encoders_(self) -> tuple[BitEncoder, ...]:
        """Box, percentiles and precision, without shift; one per scaling."""
        return tuple(map(as_encoder, self._inserted().encoders))

    def refresh(self) -> Self:
        """Fit again from scratch on all rows passed to `fit` and `partial_fit`.

        Raises ValueError if the training rows were not kept. Threads that add rows at the same time
        wait for the end.
        """
        check_is_fitted(self)
        with self._lock:
            stream = self._insert_all()
            if stream.kept is None:
                raise ValueError(
                    "refresh needs the training rows, which this model does not hold: fit with "
                    "keep_rows=True, and save with training_data=True"
                )
            self._check_parameters()
            rows, columns = stream.kept, stream.columns
            y = rows.y[:, 0] if self.one_dimensional_ else rows.y
            given = (rows.features, columns, y, rows.weight, rows.known_noise)
            return self._fit_read(*given, n_newest=stream.plan.n_newest)

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
        None. Raises TypeError if `target_transform` is a transformer of scikit-learn, and
        ValueError if a parameter is one that `fit` would refuse.
        """
        self._check_savable()
        facts, arrays = pack_model(self._state(), training_data)
        parameters = plain_parameters(self.get_params(deep=False))
        named = {"estimator": type(self).__name__, "parameters": parameters}
        write_file(path, named | {"model": facts}, arrays)

    def _check_savable(self) -> None:
        """Raise an error if `save` cannot write the model."""
        check_is_fitted(self)
        name = type(self).__name__
        if name not in ESTIMATORS or find_estimator(name) is not type(self):
            raise TypeError(
                f"save writes {' and '.join(sorted(ESTIMATORS))}, got {name}: "
                "triegp.load could not make one; pickle it instead"
            )
        if not isinstance(self.target_transform, str):
            raise TypeError(
                "model files never hold pickles, so a target_transform of type "
                f"{type(self.target_transform).__name__} cannot be saved: pickle the estimator"
            )
        self._check_parameters(here=False)

    def report(
        self,
        path: str | Path,
        X: Any = None,
        y: Any = None,
        *,
        title: str | None = None,
        targets: Sequence[str] | None = None,
        n_effects: int = 6,
        n_rows: int = 10,
    ) -> Path:
        """Write one HTML file that explains the fitted model to a person; return its path.

        Accuracy and calibration by leave-one-out, and of a test set if X and y are given; what
        matters; effects; where predictions are uncertain; rows to look at; advice. Needs matplotlib
        (`pip install 'triegp[plots]'`).

        Parameters
        ----------
        path : str or Path
            Where to write; an existing file is replaced in one step.
        X, y : array-like (m, n_features), (m,) or (m, n_targets), optional
            A test set, which the model has not seen; both or none.
        title, targets, n_effects, n_rows : str, sequence of str, int, int
            As for `triegp.report.write_report`.
        """
        from triegp.report import write_report

        options: dict[str, Any] = {"n_effects": n_effects, "n_rows": n_rows}
        return write_report(self, path, X, y, title=title, targets=targets, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
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
        """State for pickle and copy: a fitted model nearly as in a model file, with kept rows."""
        state = dict(super().__getstate__())
        if "_stream" not in state:
            return state
        model = self._state()
        if any(isinstance(one, Transformer) for one in model.stream.transforms):
            state["_transforms"] = model.stream.transforms
            model = replace(model, stream=replace(model.stream, transforms=()))
        packed = pack_model(model, model.stream.kept is not None, quickly=True)
        for name in ("_stream", "_lock", "_summary"):
            state.pop(name, None)
        return state | {"_packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from pickle or copy; messages are computed again, to the same bits."""
        packed, transforms = state.pop("_packed", None), state.pop("_transforms", None)
        super().__setstate__(state)
        if packed is not None:
            facts, arrays = packed
            model = unpack_model(facts, arrays, self._kind)
            if transforms is not None:
                model = replace(model, stream=replace(model.stream, transforms=transforms))
            self._restore(model)

    def _describe(self, stream: Stream, contents: str, noise: list[float]) -> str:
        """Rows, targets, contents and noise, for `repr`; does not insert waiting rows.

        noise: variance of the noise of each model, in standardised units.
        """
        waiting = sum(batch.n_rows for batch in stream.waiting)
        text = count_of(max(stream.plan.n_rows - waiting, 0), "row")
        text += f" and {waiting:,} waiting" if waiting else ""
        n_targets = stream.scale.size
        text += f", {n_targets} targets" if n_targets > 1 else ""
        targets = self._targets(stream)
        ratios = noise * n_targets if len(noise) == 1 else noise
        pairs = zip(targets, ratios, strict=True)
        shown = [f"{ratio:.3g}" for target, ratio in pairs if not _is_constant(target)]
        n_constant = n_targets - len(shown)
        shown = shown[:SHOWN_TARGETS] + ["..."] * (len(shown) > SHOWN_TARGETS)
        text += f", {contents}"
        text += f", noise {', '.join(shown)} of the variance" if shown else ""
        if n_constant:
            text += ", constant y" if n_targets == 1 else f", {n_constant} of them constant"
        return text

    def _state(self) -> ModelState:
        """State of a fitted model on the host, without its parameters; inserts waiting rows."""
        with self._lock:  # a fit that ends now would change the facts below
            stream = self._insert_all()
            state = ModelState(
                stream,
                self.one_dimensional_,
                bool(self.stopped_early_),
                int(self.n_evaluations_),
                self.fit_seconds_,
                self.training_curve_,
            )
        host = CpuEngine()
        fitted = tuple(place_model(part, host) for part in stream.fitted)
        return replace(state, stream=replace(stream, fitted=fitted))

    def _restore(self, state: ModelState) -> None:
        """Set all fitted attributes."""
        lock = self.__dict__.get("_lock") or self._new_lock()  # others may wait for it
        with lock:
            fitted: dict[str, Any] = {
                "one_dimensional_": state.one_dimensional,
                "n_features_in_": state.stream.layout.n_columns,
                "_told": set(),
                "_lock": lock,
            }
            if state.stream.columns.names is not None:
                fitted["feature_names_in_"] = np.array(state.stream.columns.names, dtype=object)
            drop = ("_summary", "feature_names_in_")
            self._adopt(state, state.stream.plan, fitted=fitted, drop=drop)

    def _adopt(
        self,
        state: ModelState,
        plan: Plan,
        waiting: tuple[Rows, ...] = (),
        fitted: Mapping[str, Any] = MappingProxyType({}),
        drop: tuple[str, ...] = ("_summary",),
    ) -> None:
        """Replace the stream, what belongs to a single fit, and other fitted attributes.

        All of them are replaced in one step: Ctrl-C leaves the old ones or the new ones.
        """
        now = self.__dict__.copy()  # other threads may add attributes
        kept = {name: value for name, value in now.items() if name not in drop}
        self.__dict__ = {
            **kept,
            **fitted,
            "stopped_early_": state.stopped_early,
            "n_evaluations_": state.n_evaluations,
            "fit_seconds_": state.fit_seconds,
            "training_curve_": state.curve,
            "_stream": replace(state.stream, plan=plan, waiting=waiting),
        }

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def _check_features(self, X: Any, n_columns: int) -> None:
        validate_data(self, X, reset=False, skip_check_array=True)

    def _refit(self) -> None:
        self._check_parameters()
        stream = self._stream
        rows, rest = rows_to_fit(stream)
        columns = stream.columns
        state, told = self._fit_rows(rows, self.one_dimensional_, columns, stream.seeds)
        new = state.stream
        plan = replace(stream.plan, n_model=new.plan.n_model, fit_at=0)
        rest = tuple(replace(one, X=recode(one.features, columns, new.columns)) for one in rest)
        if not new.layout.plain:  # boxes are those of the working columns
            n_rows, n_aside, n_newest = plan.n_rows, plan.n_aside, plan.n_newest
            plan = replace(new.plan, n_rows=n_rows, n_aside=n_aside, n_newest=n_newest)
        self._adopt(state, plan, rest)
        tell_warnings(told)

    def _tell_stream(self, queued: Queued) -> None:
        """Warn, once per fitted model, about rows that stay aside and fits that cannot be done."""
        for name, text in stream_warnings(queued, refits=self.refit == "auto"):
            if name not in self._told:
                self._told.add(name)
                warnings.warn(text, UserWarning, stacklevel=3)

    def _fit_read(
        self,
        data: npt.NDArray[Any],
        columns: Columns,
        y: Any,
        weight: Any,
        known_noise: Any,
        memory: Memory | None = None,
        n_newest: int = 0,
    ) -> Self:
        """Train on a table as `read_table` returns it; fitted attributes are set at the end.

        memory: which of the rows are remembered, and with which weights; None for all. n_newest: of
        the rows, how many have not faded yet, if there is no memory.
        """
        check_finite(data, columns.names, missing=True)
        rows = read_rows(data, y, weight, known_noise)
        if memory is not None:
            rows, n_newest = remember(rows, memory)
            refuse_zero_weights(rows)
        state, told = self._fit_rows(rows, np.asarray(y).ndim == 1, columns, None)
        plan = replace(state.stream.plan, n_newest=n_newest)
        self._restore(replace(state, stream=replace(state.stream, plan=plan)))
        tell_warnings(told)
        return self

    def _hold_training_rows(self, rows: Rows, columns: Columns) -> Any:
        """Features (n, d) on the device that will train, if they are to be prepared there.

        None if they are prepared on the host. They are finite numbers, and rows have no weights.
        """
        return None

    @one_blas_thread()  # more of them round in other ways
    @device_work()
    def _fit_rows(
        self, rows: Rows, one_dimensional: bool, columns: Columns, seeds: tuple[Seed, ...] | None
    ) -> tuple[ModelState, list[Warning]]:
        """Train on checked rows; return the fitted state and what to warn about.

        rows: with the columns of the table. seeds: where random numbers come from; by default
        `random_state`.
        """
        began = time.monotonic()
        settings = self._settings()
        parameters = self.get_params(deep=False)
        groups = group_targets(rows.n_targets, parameters.get("multi_target", "own"))
        if seeds is None or len(seeds) != len(groups):
            seeds = draw_seeds(parameters["random_state"], len(groups))
        used = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
        data, columns = sort_categories(rows.features, columns, used)
        rows = replace(rows, X=data)
        passed, source = rows, seeds[0]
        skipped = list[str]()
        transforms = fit_transforms(
            self.target_transform,
            passed,
            lambda t: choose_by_mixtures(self, passed, columns, t, source, skipped),
        )
        rows = transform_rows(passed, transforms)
        mean, scale = self._location_and_scale(rows)
        counted = rows.weight
        if counted is not None and self.weights == "precision":  # one observation each
            counted = (counted > 0).astype(np.float64)
        held = self._hold_training_rows(rows, columns)
        if held is None:
            layout, working = fit_layout(rows.features, columns, rows.y, counted)
        else:
            layout, working = held_layout(held), held
        rows = replace(rows, X=working)
        folded = fold_rows(rows, self.weights, scale)
        distinct = folded.rows
        encoders = self._encoders(distinct, settings, layout)
        names = layout.names(columns.names)
        for encoder in encoders if names is not None else ():
            encoder.feature_names_in_ = np.array(names, dtype=object)
        if distinct.scatter is None:  # otherwise it is in the units of all rows
            mean, scale = self._location_and_scale(distinct)
        observations = folded.observations((rows.y - mean) / scale)
        distinct = standardise(distinct, mean, scale)
        trained, ended_by, left_out = self._train_targets(
            encoders, distinct, observations, settings, groups, seeds, began
        )
        left_out = [*skipped, *left_out]
        stopped = bool(left_out) or any(part.stopped for part in trained)
        stream = Stream(
            encoders=encoders,
            mean=mean,
            scale=scale,
            columns=columns,
            layout=layout,
            fitted=tuple(part.fitted for part in trained),
            kept=copy_rows(passed) if self.keep_rows else None,
            observations=observations,
            plan=new_plan(replace(passed, X=working), trained[0].fitted.n_rows),
            seeds=seeds,
            transforms=transforms,
            divided=self.weights == "precision",
        )
        state = self._fitted_state(stream, one_dimensional, stopped, trained, began)
        told = [*far_targets_warning(passed), *copies_warning(folded, rows.n_rows)]
        if stopped:
            told.append(stop_warning(ended_by, left_out))
        return state, told

    def _fitted_state(
        self,
        stream: Stream,
        one_dimensional: bool,
        stopped: bool,
        trained: Sequence[Trained],
        began: float,
    ) -> ModelState:
        """The state of an estimator after a fit that began at this time."""
        n_evaluations = sum(part.n_evaluations for part in trained)
        curve = join_curves([part.curve for part in trained])
        seconds = seconds_since(began)
        return ModelState(stream, one_dimensional, stopped, n_evaluations, seconds, curve)

    def _train_calibrated(
        self,
        encoders: tuple[Quantiser, ...],
        rows: Rows,
        observations: Observations | None,
        settings: Any,
        run: Run,
        whole: Whole | None = None,
    ) -> Trained:
        """Train one model for all targets of the rows, and calibrate it if it is to be."""
        trained = train_calibrated(
            lambda own, some, its_run: self._train(encoders, some, own, its_run, whole),
            settings,
            () if whole is not None else self._variants(settings),
            rows,
            observations,
            run,
            local=self.get_params(deep=False).get("local_noise", True),
            by_var=self._by_var,
            by_folds=self._by_folds,
            divided=self.weights == "precision",
        )
        if not isinstance(trained.fitted, CalibratedModel):
            return trained
        border = self._border(encoders[0], rows, trained)
        return trained._replace(fitted=replace(trained.fitted, border=border))

    def _border(self, encoder: Quantiser, rows: Rows, trained: Trained) -> Border | None:
        """What happens beyond the box, by the explained variance of each feature.

        Leave-one-out says how much of y is explained. Two standard errors are added: with few rows
        it cannot tell that a feature explains nothing. It is added to what a model that goes on
        beyond the box says itself: its prior does not foresee a trend.
        """
        if self.outside not in ("widen", "unrelated"):
            return None
        assert trained.residuals is not None
        slope = np.zeros((rows.n_targets, encoder.n_working))
        for column, left in enumerate(trained.residuals if self.outside == "widen" else ()):
            error = np.average(np.square(left.y - left.mean), weights=left.weight)
            signal = float(np.clip(1.0 - error + 2.0 / np.sqrt(left.y.size), 0.0, 1.0))
            share = self._shares(base_of(trained.fitted), column).explained
            y = rows.y[:, column]
            slope[column] = learn_slopes(rows.features, rows.weight, y, share, signal)
        return Border(encoder.low_, encoder.high_, slope, self.outside == "unrelated")

    def _train_targets(
        self,
        encoders: tuple[Quantiser, ...],
        rows: Rows,
        observations: Observations | None,
        settings: Any,
        groups: list[list[int]],
        seeds: tuple[Seed, ...],
        began: float,
        wholes: Sequence[Whole] | None = None,
    ) -> tuple[list[Trained], str, list[str]]:
        """Train one model per target, or one for all.

        Also returns what ended training early, if so, and what was left out. began: the time at
        which the time budget begins. Its rest is shared equally by the models not trained yet.
        wholes: all rows for each model, if `rows` are some of them.
        """
        parameters = self.get_params(deep=False)
        budget = parameters["time_budget"]
        keep, verbose = parameters["on_interrupt"] == "keep", parameters["verbose"]
        trained: list[Trained] = []
        left_out = list[str]()
        watch = Stopwatch()

        def train(k: int) -> Trained:
            group, seed = groups[k], seeds[k]
            run = Run(
                rng=generator_of(seed),
                n_threads=count_threads(parameters["n_jobs"]),
                watch=watch.again(share_budget(budget, began, len(groups) - k)),
                progress=progress_bars(verbose),
                keep=keep,
                engine=parameters["engine"],
                left_out=left_out,
                pool=self._pool(),
            )
            own = observations
            if own is not None:
                own = replace(own, y=own.y[:, group])
            whole = None if wholes is None else wholes[k]
            return self._train_calibrated(encoders, rows.targets(group), own, settings, run, whole)

        try:
            with keep_interrupts(watch, verbose) if keep else nullcontext():
                for k in range(len(groups)):
                    trained.append(train(k))
        except GivenUp:
            raise KeyboardInterrupt from None
        ended_by = "Ctrl-C" if watch.interrupted else f"time_budget of {budget} s"
        return trained, ended_by, left_out


def seconds_since(began: float) -> float:
    """Wall-clock seconds since `began`, a value of `time.monotonic`; to milliseconds."""
    return round(time.monotonic() - began, 3)


def tell_warnings(told: list[Warning]) -> None:
    """Issue warnings of a fit, after its result is in place."""
    for warning in told:
        warnings.warn(warning, stacklevel=4)


def stop_warning(ended_by: str, left_out: Sequence[str]) -> Warning:
    """Warning of a training that ended early."""
    shorter = f"; left out or shortened: {', '.join(left_out)}" if left_out else ""
    text = f"training was ended by {ended_by}; the best found so far is kept{shorter}"
    warning: Warning = ConvergenceWarning(text)
    return warning


def count_of(n: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{n:,} {noun}" + "s" * (n != 1)


def _is_constant(target: Target) -> bool:
    """Whether the target was constant when the model was fitted."""
    y, _ = target.fitted.observed(target.column)
    return bool(np.nanmax(np.abs(y)) < 0.5)  # other targets have a standard deviation of 1
