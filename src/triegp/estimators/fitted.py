"""What a fitted estimator holds: its models, their attributes, and leave-one-out."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from triegp.calibration.model import optimism_of, place_model
from triegp.devices import device_work
from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout
from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.estimators import units
from triegp.estimators.new_rows import lay_out
from triegp.estimators.streaming import insert_waiting, look_ahead
from triegp.estimators.transforms import describe_transforms
from triegp.estimators.units import Target
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Fitted
from triegp.models.state import Stream
from triegp.models.transformed import TransformedDistribution
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]


_locked: WeakValueDictionary[int, FittedEstimator] = WeakValueDictionary()


def _renew_locks() -> None:
    """Give every model a new lock: in a forked child, the thread that held the old one is gone."""
    for model in _locked.values():
        model._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class FittedEstimator:
    """Models of a fitted estimator, attributes that describe them, and leave-one-out.

    Attributes
    ----------
    one_dimensional_ : bool
        Whether y was passed as a vector.
    """

    one_dimensional_: bool
    _stream: Stream
    _lock: Any  # an RLock, held while `_stream` is replaced: warnings may lead back here
    _summary: tuple[Any, Any, float]  # models, their log marginal likelihood and loo score

    def loo_predict(self) -> tuple[Any, Any]:
        """Leave-one-out mean and standard deviation of each training target, without refitting.

        Returns two arrays (n,) or (n, n_targets), with NaN for rows of weight 0. Each target is
        predicted given all other rows, noise included. Rows that `partial_fit` has set aside are
        predicted as new rows are; NaN if rows are not kept. Raises ValueError if the model was
        fitted to more rows than it holds (`max_cells`).
        """
        stream = _holding_rows(self._inserted())
        mean, std = zip(*map(units.loo_moments, self._left_out(stream)), strict=True)
        return self._shape(mean), self._shape(std)

    def loo_log_density(self) -> Any:
        """Leave-one-out log density of each training target, (n,) or (n, n_targets).

        NaN, and ValueError, as of `loo_predict`.
        """
        stream = _holding_rows(self._inserted())
        return self._shape([units.loo_log_density(target) for target in self._left_out(stream)])

    def loo_distribution(
        self,
    ) -> (
        PredictiveDistribution
        | TransformedDistribution
        | list[PredictiveDistribution | TransformedDistribution]
    ):
        """Leave-one-out predictive distribution of each training target, without refitting.

        Returns what `predict_distribution` does, at the training rows: the distribution of each
        target given all other rows, noise included; a list with one per target if y was
        2-dimensional. NaN, and ValueError, as of `loo_predict`. Takes O(K n) memory for K
        components.
        """
        stream = _holding_rows(self._inserted())
        found = [units.loo_distribution(target) for target in self._left_out(stream)]
        return found[0] if self.one_dimensional_ else found

    def loo_targets(self) -> Any:
        """The training targets that leave-one-out is about, (n,) or (n, n_targets), in units of y.

        They are in the order in which rows were passed, also if the rows themselves are not kept;
        equal to what was passed, to rounding. NaN for rows of weight 0 and for those that
        `partial_fit` has set aside. Raises ValueError as `loo_predict` does.
        """
        stream = _holding_rows(self._inserted())
        return self._shape([units.observed_targets(target) for target in self._targets(stream)])

    def loo_weights(self) -> Floats | None:
        """Relative weights of the training rows in leave-one-out, (n,); None if all are equal.

        Proportional to the sample weights that were passed, in the order of `loo_targets`, also if
        the rows themselves are not kept. 0 for rows that are not used. Raises ValueError as
        `loo_predict` does.
        """
        stream = _holding_rows(self._inserted())
        _, weight = next(iter(self._targets(stream))).observed()
        return None if weight is None or np.ptp(weight) == 0 else np.asarray(weight)

    @property
    def n_rows_(self) -> int:
        """Number of training rows, as they were passed to `fit` and `partial_fit`."""
        return self._inserted().n_rows

    @property
    def holds_rows_(self) -> bool:
        """Whether the model holds all of its rows; otherwise it holds sums of them by cell."""
        return not self._inserted().fitted[0].n_summed

    @property
    def n_copies_(self) -> int:
        """Training rows that are copies of others: they repeat with the same target, or nearly.

        0 if rows with the same features are repeated measurements. If the model was fitted to more
        rows than it holds, of those that it holds.
        """
        observations = self._inserted().observations
        if observations is None or not observations.copies:
            return 0
        used = observations.index[observations.index >= 0]
        return int(used.size - np.unique(used).size)

    @property
    def encoders_(self) -> tuple[Quantiser, ...]:
        """Box, percentiles and precision, without shift; one per scaling."""
        return self._inserted().encoders

    @property
    def columns_(self) -> Columns:
        """Kinds, categories and names of the columns of X, as they are read."""
        return self._inserted().columns

    @property
    def layout_(self) -> Layout:
        """The columns that the model works on, and the column of X that each comes from."""
        return self._inserted().layout

    @property
    def target_mean_(self) -> Floats:
        """Mean by which targets are standardised, after their transform, (n_targets,)."""
        return self._inserted().mean

    @property
    def target_scale_(self) -> Floats:
        """Deviation by which targets are standardised, after their transform, (n_targets,)."""
        return self._inserted().scale

    @property
    def target_transform_(self) -> Any:
        """Name of the transform, or the fitted transformer; a list if y was 2-dimensional."""
        stream = self._inserted()
        shown = describe_transforms(stream.transforms, stream.mean.size)
        return shown[0] if self.one_dimensional_ else shown

    @property
    def rows_(self) -> Rows | None:
        """The training rows as they were passed, or None if they are not kept."""
        return self._inserted().kept

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Log marginal likelihood of the training targets in their own units.

        A float, or float64 (n_targets,) if y was 2-dimensional.
        """
        return self._summarise()[0]

    @property
    def loo_score_(self) -> float:
        """Mean leave-one-out log density of the training targets in their own units.

        Less `loo_optimism_`, so that it is that of new rows. If the model was fitted to more rows
        than it holds, of those that it holds.
        """
        return self._summarise()[1]

    @property
    def loo_optimism_(self) -> Any:
        """What leave-one-out log densities gain, per row, as parameters have seen the targets.

        A float, or float64 (n_targets,) if y was 2-dimensional. Calibration measures it on rows
        that some parameters have not seen; rows that were added since count 0, as does all
        without a calibration.
        """
        stream = self._inserted()
        seen = min(1.0, stream.plan.n_model / stream.fitted[0].n_rows)  # share of the rows
        each = [seen * optimism_of(part.fitted, part.column) for part in self._targets(stream)]
        return each[0] if self.one_dimensional_ else np.array(each)

    def _make_lock(self) -> None:
        """Give the model a lock of its own, and a new one after a fork."""
        self._lock = self._new_lock()

    def _new_lock(self) -> Any:
        """A lock for the model, which gets a new one after a fork."""
        _locked[id(self)] = self
        return threading.RLock()

    def _placed(self) -> Stream:
        """`_inserted`, with the models where parameter `engine` says that they predict."""
        stream = self._inserted()
        engine = self._engine_for(stream.fitted)
        if engine is None:
            return stream
        with self._lock, device_work():
            stream = self._insert_all()
            fitted = tuple(place_model(part, engine) for part in stream.fitted)
            self._stream = replace(stream, fitted=fitted)
            self.__dict__.pop("_summary", None)  # it would keep the old models alive
            return self._stream

    def _looking_ahead(self, n_new: int) -> Stream:
        """The stream whose models predict n_new rows, given all rows that were added.

        Waiting rows are inserted only if that is cheaper. Models of the result are for predictions
        at new rows.
        """
        self._check_fitted()
        if not self._stream.waiting or self._engine_for(self._stream.fitted) is not None:
            return self._placed()
        with self._lock:
            ahead = look_ahead(self._stream, n_new) if self._stream.waiting else None
            if ahead is not None:
                self._stream = ahead
        return self._placed() if ahead is None else replace(ahead, fitted=ahead.ahead)

    def _engine_for(self, fitted: Sequence[Fitted]) -> Engine | None:
        """The engine whose memory the models have to move to; None if they stay where they are."""
        return None

    def _inserted(self) -> Stream:
        """The stream after inserting all waiting rows; fits anew first if a fit is due.

        No rows wait in what is returned, also if another thread adds some at the same time.
        """
        self._check_fitted()
        stream = self._stream
        if not stream.waiting:
            return stream
        with self._lock:
            return self._insert_all()

    def _insert_all(self) -> Stream:
        """`_inserted`, for those who hold the lock."""
        if self._stream.waiting:
            with device_work():
                if self._stream.plan.fit_at:
                    self._refit()
                self._stream = insert_waiting(self._stream)
            self.__dict__.pop("_summary", None)  # it would keep the old models alive
        return self._stream

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a model. Other threads may add attributes: none are iterated over."""
        return hasattr(self, "_stream")

    def _check_fitted(self) -> None:
        """Raise an error unless there is a fitted model; here, there always is."""

    @abstractmethod
    def _refit(self) -> None:
        """Replace the stream by that of a fit to all rows up to where it became due."""

    def _as_asked(self, fitted: Fitted) -> Fitted:
        """The model as it is to predict by parameters that may be changed after `fit`."""
        return fitted

    def _targets(self, stream: Stream | None = None) -> list[Target]:
        """One entry per target: its model, its column in that model, and its units.

        stream: the models to use, by default the current ones. A method that uses more than this
        list takes the stream once: another thread may add rows in between.
        """
        stream = stream or self._inserted()
        fitted, observations = stream.fitted, stream.observations
        shared = len(fitted) == 1
        targets = []
        fitted = tuple(self._as_asked(part) for part in fitted)
        for t, (mean, scale) in enumerate(
            zip(stream.mean.tolist(), stream.scale.tolist(), strict=True)
        ):
            own = observations
            if own is not None and not shared:
                own = replace(own, y=own.y[:, [t]])
            part, column = (fitted[0], t) if shared else (fitted[t], 0)
            transform = stream.transforms[t] if stream.transforms else None
            targets.append(Target(part, column, mean, scale, own, transform))
        return targets

    def _left_out(self, stream: Stream) -> list[Target]:
        """`_targets` with the rows that were set aside, if they are kept."""
        targets, observations, kept = self._targets(stream), stream.observations, stream.kept
        if observations is None or kept is None:
            return targets
        waits = observations.index < 0
        if kept.weight is not None:
            waits &= kept.weight > 0
        if not waits.any():
            return targets
        aside = lay_out(stream.layout, kept.features[waits]), np.flatnonzero(waits)
        return [replace(target, aside=aside) for target in targets]

    def _summarise(self) -> tuple[Any, float]:
        """Log marginal likelihood and leave-one-out score; computed on first use."""
        stream = self._inserted()
        summary = self.__dict__.get("_summary")
        if summary is None or summary[0] is not stream.fitted:
            targets = self._targets(stream)
            divided = stream.divided
            evidence = [units.log_marginal_likelihood(t, precision=divided) for t in targets]
            density = np.sum([units.loo_log_density(target) for target in targets], axis=0)
            weight = targets[0].observed()[1]
            if weight is not None:  # leave-one-out is NaN for rows of weight 0
                density, weight = density[weight > 0], weight[weight > 0]
            score = float(np.average(density, weights=weight))
            score -= float(np.sum(self.loo_optimism_))
            value = evidence[0] if self.one_dimensional_ else np.array(evidence)
            summary = self._summary = stream.fitted, value, score
        return summary[1], summary[2]

    def _shape(self, values: Sequence[Floats]) -> Floats:
        """Combine one array per target: the array itself if y was 1-d, else stacked on axis -1."""
        return values[0] if self.one_dimensional_ else np.stack(values, axis=-1)


def _holding_rows(stream: Stream) -> Stream:
    """The stream; raises ValueError if its models hold some of their rows only."""
    if stream.fitted[0].n_summed:
        raise ValueError(
            f"this model was fitted to {stream.n_rows:,} rows and holds {stream.fitted[0].n_rows:,}"
            " of them: loo_score_ is known, leave-one-out of every row is not"
        )
    return stream
