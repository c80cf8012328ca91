"""Rows that are forgotten: dropped, or faded by a factor of their weights.

The models are conditioned on what is left, at the same parameters. A later fit gets the same rows
with the same weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from triegp.calibration.model import reweigh_model
from triegp.encoding.layout import read_working
from triegp.engines import CpuEngine
from triegp.estimators.streaming import Stream, groups_of, observe_rows, varies
from triegp.files.state import Plan
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST_WEIGHT = 1e-12  # rows that fade below this weight are dropped


def forget_rows(stream: Stream, n_last: int | None, factor: float) -> Stream:
    """The stream with its last rows only, and with all weights times a factor. O(n) per tree.

    No rows may wait, and rows must be kept.
    """
    kept = stream.kept
    assert kept is not None
    n_rows = kept.n_rows
    weight = factor * (np.ones(n_rows) if kept.weight is None else kept.weight)
    stays = np.arange(n_rows) >= n_rows - (n_rows if n_last is None else n_last)
    stays &= (weight == 0.0) | (weight >= LEAST_WEIGHT)
    before = stream.observations or observe_rows(stream.fitted)
    own = factor * (np.ones(n_rows) if before.weight is None else before.weight)
    used = stays & (before.index >= 0) & (own > 0.0)
    if not used.any():
        raise ValueError(
            f"forget must leave a row that the model uses, got keep_last={n_last}, factor={factor}"
        )
    source, first, index = np.unique(before.index[used], return_index=True, return_inverse=True)
    working, _ = read_working(stream.layout, kept.features)
    reading = {"copies": before.copies, "precision": stream.divided}
    rows = _fold(index, before.y[used], own[used], **reading)
    rows = replace(rows, X=working[used][first])
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
    left = kept.select(stays)
    if kept.weight is not None or factor < 1.0:
        left = replace(left, weight=weight[stays])
    aside = stays & (before.index < 0) & (weight > 0.0)
    counted = stays & (weight > 0.0)
    plan = _shorten(stream.plan, stays, aside, int((source < stream.plan.n_model).sum()))
    plan = _narrow(plan, working[counted], kept.select(counted))
    return replace(
        stream,
        fitted=fitted,
        kept=left,
        observations=None if alone else observations,
        plan=plan,
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


def _shorten(plan: Plan, stays: Bools, aside: Bools, n_model: int) -> Plan:
    """The plan with its rows counted anew: those of the last fit are those that are still there."""
    return replace(
        plan,
        n_rows=int(stays.sum()),
        n_fit=int(stays[: plan.n_fit].sum()),
        n_calibrated=int(stays[: plan.n_calibrated].sum()),
        n_model=n_model,
        n_aside=int(aside[plan.n_fit :].sum()),
    )


def _narrow(plan: Plan, X: Floats, rows: Rows) -> Plan:
    """The plan with the box and the targets of some rows, for the next fit."""
    return replace(
        plan,
        lowest=X.min(axis=0).astype(np.float64),
        highest=X.max(axis=0).astype(np.float64),
        level=rows.y[0],
        varied=varies(rows, rows.y[0]),
    )
