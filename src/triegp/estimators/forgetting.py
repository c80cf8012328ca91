"""Rows that are forgotten: dropped, or faded by a factor of their weights.

The models are conditioned on what is left, at the same parameters. A later fit gets the same rows
with the same weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from triegp.calibration.model import base_of, reweigh_model
from triegp.encoding.layout import read_working
from triegp.engines import CpuEngine, one_blas_thread
from triegp.estimators.memory import Memory, fade_rows
from triegp.estimators.new_rows import any_unseen
from triegp.estimators.streaming import (
    GROWTH,
    Queued,
    calibrate_again,
    fit_is_due,
    groups_of,
    insert_waiting,
    observe_rows,
    plan_calibration,
    plan_fit,
    queue_rows,
    varies,
)
from triegp.models.repeats import Observations
from triegp.models.state import Plan, Stream
from triegp.tree.rows import Rows, join_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST_WEIGHT = 1e-12  # rows that fade below this weight are dropped


def check_forgetting(stream: Stream, what: str) -> None:
    """Raise ValueError unless the models can forget rows; what: the parameter that asks for it."""
    if base_of(stream.fitted[0]).held is not None:
        raise ValueError(
            f"{what} is not possible here: a model that holds sums of its rows (max_cells) cannot "
            "forget"
        )
    if stream.kept is None:
        raise ValueError(
            f"{what} needs the training rows, which this model does not hold: fit with "
            "keep_rows=True, and save with training_data=True"
        )


@one_blas_thread()
def forget_rows(stream: Stream, n_last: int | None, factor: float) -> Stream:
    """The stream with its last rows only, and with all weights times a factor. O(n) per tree.

    No rows may wait, and rows must be kept.
    """
    kept = stream.kept
    assert kept is not None
    n_rows = kept.n_rows
    weight = fade_rows(kept, factor).weight
    stays = np.arange(n_rows) >= n_rows - (n_rows if n_last is None else n_last)
    if weight is not None:
        stays &= (weight == 0.0) | (weight >= LEAST_WEIGHT)
    found = _condition(stream, stays, factor)
    if found is None:
        raise ValueError(
            f"forget must leave a row that the model uses, got keep_last={n_last}, factor={factor}"
        )
    assert found.kept is not None
    plan = _count_again(stream, stays, found.kept)
    return replace(found, plan=replace(plan, n_model=found.plan.n_model))


def queue_and_forget(stream: Stream, batch: Rows, memory: Memory, *, refit: bool) -> Queued:
    """The stream with one more batch, of which `memory` says what is still known. O(n) per tree.

    Nothing is due before: neither a fit nor a calibration. If a fit is due after that, it is left
    to the next prediction, and the models are those of before. Otherwise no rows wait any more.
    Raises ValueError if no row is left that the models use.
    """
    assert stream.kept is not None
    plan = stream.plan
    assert plan.fit_at == plan.calibrate_at == 0
    fade = memory.fade(plan.n_newest, batch.n_rows)
    n_before, n_all = plan.n_rows, plan.n_rows + batch.n_rows
    n_gone = memory.count_dropped(n_all)
    some = np.arange(max(0, n_gone - n_before), batch.n_rows)
    batch = fade_rows(batch, fade.own).select(some)  # a batch may be larger than the window
    n_all, n_gone = n_before + some.size, min(n_gone, n_before)
    before = join_rows([stream.kept, *stream.waiting])
    before = fade_rows(before.select(np.arange(n_gone, n_before)), fade.before)
    left = join_rows([before, batch])
    stays = np.arange(n_all) >= n_gone
    plan = replace(_count_again(stream, stays, left), n_newest=fade.n_newest)
    aside, all_seen = _mark_aside(stream, batch)
    if refit and (fit_is_due(plan) or _has_faded(left, plan.n_fit)):
        if left.weight is not None and not left.weight.any():
            raise ValueError(_nothing_left(memory))
        queued = replace(stream, kept=before, waiting=(batch,), ahead=(), n_ahead=0, n_asked=0)
        return Queued(replace(queued, plan=plan_fit(plan)), 0, False, all_seen)
    plan = plan_calibration(plan) if refit else plan
    inserted = insert_waiting(replace(stream, waiting=(*stream.waiting, batch)))
    factor = np.repeat([fade.before, 1.0], [n_before, batch.n_rows])
    found = _condition(inserted, stays, factor)
    if found is None:
        raise ValueError(_nothing_left(memory))
    found = replace(found, plan=replace(plan, n_model=found.plan.n_model, calibrate_at=0))
    if plan.calibrate_at:
        found = calibrate_again(found)
    return Queued(found, int(aside.sum()), False, all_seen)


def queue_and_count(stream: Stream, batch: Rows, memory: Memory, *, refit: bool) -> Queued:
    """`queue_rows`, if the memory forgets nothing yet."""
    queued = queue_rows(stream, batch, refit=refit)
    n_newest = memory.fade(stream.plan.n_newest, batch.n_rows).n_newest
    plan = replace(queued.stream.plan, n_newest=n_newest)
    return queued._replace(stream=replace(queued.stream, plan=plan))


def _has_faded(rows: Rows, n_fit: int) -> bool:
    """Whether the rows of the last fit, the first ones, have half of all weight or less."""
    if rows.weight is None:
        return False
    return float(rows.weight.sum()) >= GROWTH * float(rows.weight[:n_fit].sum())


def _nothing_left(memory: Memory) -> str:
    return (
        f"window and half_life must leave a row that the model uses, got the last {memory.window} "
        "rows all outside the training box or of weight 0: choose a larger window, or refit='auto'"
    )


def _condition(stream: Stream, stays: Bools, factor: Floats | float) -> Stream | None:
    """The models given some of the rows, with their weights times a factor; None if none is used.

    stays: bool (n,). The plan is that of the stream, but for n_model. No rows may wait.
    """
    kept = stream.kept
    assert kept is not None
    n_rows = kept.n_rows
    before = stream.observations or observe_rows(stream.fitted)
    own = factor * (np.ones(n_rows) if before.weight is None else before.weight)
    used = stays & (before.index >= 0) & (own > 0.0)
    if not used.any():
        return None
    source, first, index = np.unique(before.index[used], return_index=True, return_inverse=True)
    working, _ = read_working(stream.layout, kept.features[used][first])
    reading = {"copies": before.copies, "precision": stream.divided}
    rows = _fold(index, before.y[used], own[used], **reading)
    rows = replace(rows, X=working)
    place = np.full(n_rows, -1, np.int64)
    place[used] = index
    shares = np.where(used, own, 1.0)[stays]
    observations = Observations(
        place[stays],
        before.y[stays],
        None if (shares == 1.0).all() else shares,
        before.copies,
        before.unit,
    )
    fitted = tuple(
        reweigh_model(
            part,
            rows.targets(group),
            source,
            replace(observations, y=observations.y[:, group]),
            CpuEngine(),
        )
        for part, group in zip(stream.fitted, groups_of(stream.fitted), strict=True)
    )
    alone = stream.observations is None and bool(used[stays].all())
    faded = kept if np.all(factor == 1.0) else fade_rows(kept, factor)
    n_model = int((source < stream.plan.n_model).sum())
    return replace(
        stream,
        fitted=fitted,
        kept=faded.select(stays),
        observations=None if alone else observations,
        plan=replace(stream.plan, n_model=n_model),
    )


def _fold(index: Ints, y: Floats, weight: Floats, *, copies: bool, precision: bool) -> Rows:
    """Rows of a model from observations, as `fold_rows` reads them; row index[i] holds y[i]."""
    _, first = np.unique(index, return_index=True)

    def add(values: Floats) -> Floats:
        columns = [np.bincount(index, part) for part in values.T]
        return np.stack(columns, axis=1).astype(np.float64)

    total = np.bincount(index, weight).astype(np.float64)
    number = np.bincount(index).astype(np.float64)
    apart = y - y[first][index]  # deviations keep their accuracy
    shift = add(weight[:, None] * apart) / total[:, None]
    scatter = add(weight[:, None] * np.square(apart - shift[index]))
    if copies and precision:
        total = total / number
    mean = y[first] + shift
    if (total == 1.0).all():
        return Rows(mean)
    count = total
    if copies or precision:
        count = np.ones(total.size) if copies else number
    spread = None if copies or not scatter.any() else scatter
    return Rows(mean, weight=total, copies=count, scatter=spread)


def _count_again(stream: Stream, stays: Bools, left: Rows) -> Plan:
    """The plan of the rows that are left: those of the last fit are those that are still there.

    stays: bool (n,), which of all rows are left, waiting ones included. Box and targets are those
    of what is left, for the next fit.
    """
    plan = stream.plan
    n_fit = int(stays[: plan.n_fit].sum())
    counted = np.ones(left.n_rows, bool) if left.weight is None else left.weight > 0
    plan = replace(
        plan,
        n_rows=left.n_rows,
        n_fit=n_fit,
        n_calibrated=int(stays[: plan.n_calibrated].sum()),
        n_aside=int(_mark_aside(stream, left.select(np.arange(n_fit, left.n_rows)))[0].sum()),
    )
    if not counted.any():
        return plan
    used = left.select(counted)
    X = read_working(stream.layout, used.features)[0]
    return replace(
        plan,
        lowest=X.min(axis=0).astype(np.float64),
        highest=X.max(axis=0).astype(np.float64),
        level=used.y[0],
        varied=varies(used, used.y[0]),
    )


def _mark_aside(stream: Stream, rows: Rows) -> tuple[Bools, bool]:
    """Whether each row is set aside, and whether all values were seen before."""
    plan = stream.plan
    X, unseen = read_working(stream.layout, rows.features)
    outside = ((plan.low > X) | (plan.high < X)).any(axis=1) | any_unseen(unseen)
    return outside if rows.weight is None else outside & (rows.weight > 0), unseen is None
