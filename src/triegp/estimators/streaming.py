"""Rows added by `partial_fit`: checked at once, seen by the next prediction, inserted later.

Inserting rows merges sorted keys and sweeps over every trie, which is O(n) for any number of rows.
So batches wait, and all waiting batches are inserted together. `partial_fit` then costs O(k) for k
rows. Predictions at a few new rows use models that look ahead: they know the waiting rows, too, by
an update of O(D) per row and tree (`look_ahead`). Everything else inserts the waiting rows first,
and so do predictions once many rows wait.

Whether a model is fitted anew is decided when rows are added, by `Plan`, which only counts rows and
knows their box. The work is done before the next prediction, on exactly the rows that had been
added when it became due. So the result does not depend on when predictions are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.calibration.model import CalibratedModel, grow_model
from triegp.devices import to_host
from triegp.encoding.layout import read_working, refuse_unseen
from triegp.engines import one_blas_thread
from triegp.estimators.inputs import standardise
from triegp.estimators.new_rows import any_unseen
from triegp.estimators.outside import mark_outside
from triegp.estimators.transforms import transform_rows
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations, hash_inputs
from triegp.models.state import Plan, Stream
from triegp.tree.rows import Rows, join_rows

Floats = npt.NDArray[np.float64]

MAX_BATCHES = 256  # waiting batches beyond this number are joined into one
GROWTH = 2.0  # rows relative to the last fit at which a model is fitted anew
MOST_ASIDE = 0.1  # share of all rows that may lie outside the box before a model is fitted anew
CALIBRATION_GROWTH = 1.25  # rows relative to the last calibration at which a model is calibrated
FEWEST_FRESH = 50  # rows added since the fit, for a new calibration
FEWEST_AHEAD = 500  # rows of a model that looks ahead; with fewer, inserting is as quick
AHEAD = 64  # waiting rows that a model looks ahead to, at least
AHEAD_SHARE = 1 / 64  # the same, of its rows
ASKED_SHARE = 1 / 16  # rows predicted that way, of its rows: inserting them is then cheaper
CONSTANT = 1e-9  # relative differences of y up to this are none


class Queued(NamedTuple):
    """A stream with one more batch, how many of its rows are set aside, and whether a fit is due.

    overdue: whether a fit would be due that is not possible because rows are not kept. all_seen:
    whether the layout has seen all values of the batch.
    """

    stream: Stream
    n_aside: int
    overdue: bool
    all_seen: bool


def new_plan(rows: Rows, n_model: int) -> Plan:
    """The plan after a fit to these rows, with n_model rows of the models.

    rows: with working columns.
    """
    used = rows if rows.weight is None else rows.select(rows.weight > 0)
    low, high = map(to_host, (used.features.min(axis=0), used.features.max(axis=0)))
    level = used.y[0]
    return Plan(
        n_rows=rows.n_rows,
        n_fit=rows.n_rows,
        n_model=n_model,
        n_calibrated=rows.n_rows,
        n_aside=0,
        low=low.astype(np.float64),
        high=high.astype(np.float64),
        lowest=low.astype(np.float64),
        highest=high.astype(np.float64),
        level=level,
        varied_at_fit=varies(used, level),
        varied=varies(used, level),
    )


def queue_rows(stream: Stream, batch: Rows, *, refit: bool) -> Queued:
    """The stream with one more waiting batch. O(k d) for k rows.

    refit: whether the model may be fitted anew, or calibrated again if rows are not kept.
    """
    waiting = (*stream.waiting, batch)
    if len(waiting) > MAX_BATCHES:
        waiting = (join_rows(waiting),)
    plan = stream.plan
    X, unseen = read_working(stream.layout, batch.features)
    counts = np.ones(batch.n_rows, bool) if batch.weight is None else batch.weight > 0
    outside = (((plan.low > X) | (plan.high < X)).any(axis=1) | any_unseen(unseen)) & counts
    used = batch.select(counts)
    if used.n_rows:
        plan = replace(
            plan,
            lowest=np.minimum(plan.lowest, X[counts].min(axis=0)),
            highest=np.maximum(plan.highest, X[counts].max(axis=0)),
            varied=plan.varied | varies(used, plan.level),
        )
    n_aside = int(outside.sum())
    plan = replace(plan, n_rows=plan.n_rows + batch.n_rows, n_aside=plan.n_aside + n_aside)
    is_due = refit and fit_is_due(plan)
    if is_due and stream.kept is not None:
        plan, n_aside = plan_fit(plan), 0
    elif refit:
        plan = plan_calibration(plan)
    overdue = is_due and stream.kept is None
    return Queued(replace(stream, waiting=waiting, plan=plan), n_aside, overdue, unseen is None)


def fit_is_due(plan: Plan) -> bool:
    """Whether the rows that were added require a fit."""
    return (
        plan.n_rows >= GROWTH * plan.n_fit
        or plan.n_aside > MOST_ASIDE * plan.n_rows
        or bool((plan.varied & ~plan.varied_at_fit).any())
    )


def plan_fit(plan: Plan) -> Plan:
    """The plan with a fit to all rows so far."""
    return replace(
        plan,
        n_fit=plan.n_rows,
        n_calibrated=plan.n_rows,
        n_aside=0,
        low=plan.lowest,
        high=plan.highest,
        varied_at_fit=plan.varied,
        fit_at=plan.n_rows,
        calibrate_at=0,
    )


def plan_calibration(plan: Plan) -> Plan:
    """The plan with a calibration, if the rows that were added require one."""
    n_rows = plan.n_rows
    if n_rows - plan.n_fit < FEWEST_FRESH or n_rows < CALIBRATION_GROWTH * plan.n_calibrated:
        return plan
    return replace(plan, n_calibrated=n_rows, calibrate_at=n_rows)


@one_blas_thread()  # more of them round in other ways
def insert_waiting(stream: Stream) -> Stream:
    """Insert all waiting rows, and calibrate where the plan says. O(n + k log k) per tree.

    A fit must not be due: the estimator does it before.
    """
    if not stream.waiting:
        return stream
    batch = join_rows(stream.waiting)
    first = stream.plan.calibrate_at - stream.n_rows
    stream = replace(stream, waiting=(), ahead=(), n_ahead=0, n_asked=0)
    if first > 0:
        stream = calibrate_again(_insert(stream, batch.select(np.arange(first))))
        batch = batch.select(np.arange(first, batch.n_rows))
    if batch.n_rows:
        stream = _insert(stream, batch)
    return replace(stream, plan=replace(stream.plan, calibrate_at=0))


def calibrate_again(stream: Stream) -> Stream:
    """The stream with scale and tails learned again from the rows added since the fit."""
    added, again = _added_features(stream), _added_repeats(stream)
    fitted = tuple(_recalibrate(part, stream, added, again) for part in stream.fitted)
    return replace(stream, fitted=fitted)


@one_blas_thread()
def look_ahead(stream: Stream, n_new: int) -> Stream | None:
    """The stream with models that know all waiting rows, to predict n_new rows. O(k D) per tree.

    None if the waiting rows are to be inserted: if a fit or a calibration is due, if many rows wait
    or are predicted, or if the models cannot look ahead.
    """
    plan, n_model = stream.plan, stream.fitted[0].n_rows
    n_waiting = sum(batch.n_rows for batch in stream.waiting)
    n_asked = stream.n_asked + n_new
    if (
        plan.fit_at
        or plan.calibrate_at
        or n_model < FEWEST_AHEAD
        or n_waiting > max(AHEAD, AHEAD_SHARE * n_model)
        or n_asked > max(AHEAD, ASKED_SHARE * n_model)
    ):
        return None
    ahead = stream.ahead or stream.fitted
    if n_waiting > stream.n_ahead:
        rows, outside = _read_batch(stream, _last_rows(stream.waiting, n_waiting - stream.n_ahead))
        inner = rows.select(~outside)
        if inner.n_rows:
            pairs = zip(ahead, groups_of(ahead), strict=True)
            grown = [grow_model(part, inner.targets(group)) for part, group in pairs]
            ahead = tuple(part for part in grown if part is not None)
            if len(ahead) < len(grown):
                return None
    return replace(stream, ahead=ahead, n_ahead=n_waiting, n_asked=n_asked)


def stream_warnings(queued: Queued, *, refits: bool) -> list[tuple[str, str]]:
    """What to warn about after rows were queued, each with a name.

    refits: whether the estimator fits anew if its rows are kept.
    """
    told, plan, is_kept = [], queued.stream.plan, queued.stream.kept is not None
    if queued.overdue:
        text = (
            f"the model was fitted to {plan.n_fit:,} rows and has been passed {plan.n_rows:,}, and "
            "it cannot be fitted anew because rows are not kept: orders, weights and noise stay "
            "those of that fit; fit with keep_rows=True"
        )
        told.append(("overdue", text))
    if queued.n_aside and not (is_kept and refits):
        later = "refresh() uses them" if is_kept else "fit with keep_rows=True to use them"
        single = queued.n_aside == 1
        lie, have = ("row lies", "has") if single else ("rows lie", "have")
        text = (
            f"{queued.n_aside:,} added {lie} outside the training box, or {have} gaps or "
            "categories that training has not seen. All such rows are set aside, also those that "
            f"follow: {later}"
        )
        told.append(("aside", text))
    return told


def rows_to_fit(stream: Stream) -> tuple[Rows, tuple[Rows, ...]]:
    """All rows up to where the fit became due, and the waiting rows after that, as batches."""
    assert stream.kept is not None
    rows = join_rows([stream.kept, *stream.waiting])
    n = stream.plan.fit_at
    rest = rows.select(np.arange(n, rows.n_rows))
    return rows.select(np.arange(n)), (rest,) if rest.n_rows else ()


def check_batch(batch: Rows, stream: Stream, names: Any) -> None:
    """Raise ValueError if rows cannot be inserted. O(k) per tree for k rows.

    batch: with transformed targets. names: of the columns, or None.
    """
    encoder, layout = stream.encoders[0], stream.layout
    if encoder.outside != "clip":
        refuse_unseen(layout, batch.features, names)
    batch = replace(batch, X=read_working(layout, batch.features)[0])
    outside = encoder.find_outside(batch.features)  # the box is the same for all encoders
    if outside.any():
        raise ValueError(
            f"X of added rows must lie inside the box, row {int(np.argmax(outside))} does not"
        )
    rows = _read_weights(standardise(batch, stream.mean, stream.scale), stream)
    for part, group in zip(stream.fitted, groups_of(stream.fitted), strict=True):
        part.check(rows.targets(group))


def _insert(stream: Stream, batch: Rows) -> Stream:
    """Insert rows; those outside the box and those of weight 0 are kept, but set aside."""
    kept = None if stream.kept is None else join_rows([stream.kept, batch])
    rows, outside = _read_batch(stream, batch)
    observations, n_before = stream.observations, stream.fitted[0].n_rows
    if observations is None and outside.any():
        observations = observe_rows(stream.fitted)
    if observations is not None:
        observations = _append(observations, rows, outside, n_before)
    fitted = stream.fitted
    if not outside.all():
        inner = rows.select(~outside)
        pairs = zip(fitted, groups_of(fitted), strict=True)
        fitted = tuple(part.insert(inner.targets(group)) for part, group in pairs)
    return replace(stream, fitted=fitted, kept=kept, observations=observations)


def _read_batch(stream: Stream, batch: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Rows as the models read them, in standardised units, and whether each is set aside."""
    working, unseen = read_working(stream.layout, batch.features)
    outside = mark_outside(stream.encoders[0], working) | any_unseen(unseen)
    if batch.weight is not None:  # in a trie they would be rows from which others part
        outside |= batch.weight == 0
    rows = transform_rows(replace(batch, X=working), stream.transforms)
    rows = standardise(rows, stream.mean, stream.scale)
    return _read_weights(rows, stream), outside


def _read_weights(rows: Rows, stream: Stream) -> Rows:
    """Rows whose weights mean what they did in `fit`, in its units."""
    observations = stream.observations
    if observations is not None and observations.unit != 1.0:
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        with np.errstate(over="ignore"):  # `check_batch` refuses them
            rows = replace(rows, weight=weight / observations.unit)
    single = stream.divided or (observations is not None and observations.copies)
    if rows.weight is None or not single:
        return rows
    # They are weights of one observation each, not numbers of observations.
    return replace(rows, copies=(rows.weight > 0).astype(np.float64))


def _last_rows(batches: Sequence[Rows], n_rows: int) -> Rows:
    """The last rows of several batches, as one."""
    parts: list[Rows] = []
    for batch in reversed(batches):
        if n_rows <= 0:
            break
        some = batch
        if batch.n_rows > n_rows:
            some = batch.select(np.arange(batch.n_rows - n_rows, batch.n_rows))
        parts.append(some)
        n_rows -= batch.n_rows
    return parts[0] if len(parts) == 1 else join_rows(parts[::-1])


def observe_rows(fitted: Sequence[Fitted]) -> Observations:
    """The rows of the models as observations, each of its own row."""
    columns = [part.observed(j) for part in fitted for j in range(part.n_targets)]
    y = np.stack([column for column, _ in columns], axis=1)
    weight = columns[0][1]
    index = np.arange(y.shape[0])
    if weight is not None:
        index = np.where(weight > 0, index, -1)
        y = np.nan_to_num(y)
    return Observations(index, y, weight, False)


def _append(
    observations: Observations, rows: Rows, outside: npt.NDArray[np.bool_], first: int
) -> Observations:
    """Observations followed by new rows.

    Those that are not set aside are rows of the models, from `first` on; the others are of no row.
    """
    weight = observations.weight
    if weight is not None or rows.weight is not None:
        old = np.ones(observations.n_rows) if weight is None else weight
        weight = np.append(old, np.ones(rows.n_rows) if rows.weight is None else rows.weight)
    index = np.where(outside, -1, first - 1 + np.cumsum(~outside))
    return replace(
        observations,
        index=np.append(observations.index, index),
        y=np.concatenate([observations.y, rows.y]),
        weight=weight,
    )


def _added_features(stream: Stream) -> npt.NDArray[np.floating] | None:
    """Features of the rows of the models that were added since the fit, None if not kept."""
    if stream.kept is None:
        return None
    first = stream.plan.n_model
    added: Any = slice(first, None)
    if stream.observations is not None:
        added = stream.observations.index >= first
    return read_working(stream.layout, stream.kept.features[added])[0]


def _added_repeats(stream: Stream) -> npt.NDArray[np.bool_] | None:
    """Whether the input of each row added since the fit occurs more than once; None if unknown."""
    if stream.kept is None:
        return None
    hashes = hash_inputs(stream.kept.features)
    _, group, count = np.unique(hashes, return_inverse=True, return_counts=True)
    again = count[group] > 1
    if stream.observations is None:
        return np.asarray(again[stream.plan.n_model :])
    return np.asarray(again[stream.observations.index >= stream.plan.n_model])


def _recalibrate(
    part: Fitted,
    stream: Stream,
    added: npt.NDArray[np.floating] | None,
    again: npt.NDArray[np.bool_] | None,
) -> Fitted:
    """The model with a new calibration, if it has one and its residuals are not costly."""
    if not isinstance(part, CalibratedModel) or not part.base.quick_residuals:
        return part
    return part.recalibrate(stream.plan.n_model, added, again, divided=stream.divided)


def varies(rows: Rows, level: Floats) -> npt.NDArray[np.bool_]:
    """Whether each target takes values other than `level`, (k,)."""
    size = np.maximum(np.abs(rows.y).max(axis=0), np.abs(level))
    apart = np.abs(0.5 * rows.y - 0.5 * level).max(axis=0)  # halves cannot overflow
    return np.asarray(apart > 0.5 * CONSTANT * size)


def groups_of(fitted: Sequence[Fitted]) -> list[list[int]]:
    """Targets of each model: one target per model, or all targets in one model."""
    if len(fitted) == 1:
        return [list(range(fitted[0].n_targets))]
    return [[k] for k in range(len(fitted))]
