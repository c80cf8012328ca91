"""Fitting rows in pieces: more rows than the trees of a model have leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone

from triegp.checks import refuse_masked
from triegp.devices import device_work
from triegp.encoding.columns import sort_categories
from triegp.encoding.layout import fit_layout
from triegp.encoding.reading import check_finite
from triegp.encoding.tables import read_table
from triegp.engines import one_blas_thread
from triegp.estimators.base import TreeGPRegressor, stop_warning, tell_warnings
from triegp.estimators.inputs import check_weight, location_and_scale, read_rows, standardise
from triegp.estimators.parameters import check_common, count_threads, group_targets
from triegp.estimators.repeats import copies_warning, fold_rows
from triegp.estimators.seeds import draw_seeds, generator_of
from triegp.estimators.streaming import new_plan
from triegp.estimators.transform_choice import choose_by_mixtures
from triegp.estimators.transforms import fit_transforms, transform_rows
from triegp.estimators.whole import (
    FEWEST_ROWS,
    HELD_ROWS,
    SAMPLE_ROWS,
    Reader,
    Sample,
    draw_sample,
    join_surveys,
    survey_piece,
)
from triegp.mixture.whole import Whole
from triegp.models.pieces import LocalPieces, Piece, Pieces
from triegp.models.state import ModelState, Stream
from triegp.tree.rows import Rows

PIECE_ROWS = 1 << 19
MOST_RATIO = 1e9  # of two sample weights: smaller ones would be lost to rounding
MOST_CELLS = 1 << 22  # of a tree, by default


class PiecesRegressor(TreeGPRegressor):
    """Base class of estimators that fit more rows than they hold: `max_cells`, `fit_pieces`."""

    max_cells: int | None
    engine: str

    def fit_pieces(self, pieces: Pieces) -> Self:
        """Fit to rows that are read in pieces, so that they need not fit in memory.

        Parameters
        ----------
        pieces : Pieces
            For example `triegp.pieces.parquet_pieces(path, target="y")`.

        Returns
        -------
        self
            The same model as that of `fit` with the same rows, to the last bit, whatever the
            pieces. If the rows are not more than `max_cells`, all of them are read into memory.

        Notes
        -----
        Three passes over the rows, and one more for each further target with orders of its own.
        Memory: the rows of a sample of the inputs, about 2 million; the cells of all trees; and a
        few pieces.
        """
        check_common(self.get_params(deep=False))
        self._settings()
        if self._memory() is not None:
            raise ValueError(
                f"window and half_life need rows in memory, got {pieces.n_rows:,} rows in pieces: "
                "pass the last ones to fit"
            )
        return self._fit_pieces(pieces)

    def _pieces(self, X: Any, y: Any, sample_weight: Any, known_noise: Any) -> Pieces | None:
        n_rows = X.shape[0] if hasattr(X, "shape") and len(X.shape) == 2 else 0
        memory = self._memory()
        if memory is not None:
            n_rows -= memory.count_dropped(n_rows)
            if known_noise is None and self._by_cells(n_rows):
                raise ValueError(
                    f"window must be at most max_cells, {self._most_cells():,.0f}, got "
                    f"{memory.window:,}: a model that holds sums of its rows cannot forget"
                )
            return None
        if known_noise is not None or not self._by_cells(n_rows) or issparse(X):
            return None
        for name, values in (("X", X), ("y", y), ("sample_weight", sample_weight)):
            refuse_masked(name, values)
        weight = check_weight(sample_weight, n_rows)
        return table_pieces(X, y, weight, count_threads(self.n_jobs))

    def _by_cells(self, n_rows: int) -> bool:
        """Whether so many rows are summed up by cell."""
        return n_rows > max(self._most_cells(), self._fewest_summed())

    def _fewest_summed(self) -> int:
        """Number of rows up to which there are no cells."""
        return FEWEST_ROWS

    def _most_cells(self) -> float:
        """Largest number of leaves of a tree."""
        if self.max_cells is not None:
            return self.max_cells
        return np.inf if self.engine == "cuda" else MOST_CELLS

    def _unfitted(self) -> Any:
        """The estimator without what is fitted: what readers of pieces need."""
        return clone(self)

    def _fit_pieces(self, pieces: Pieces) -> Self:
        began = time.monotonic()
        n_rows = pieces.n_rows
        plain = self._unfitted()
        share, salt = 1.0, 0
        if self._by_cells(n_rows):
            share = min(SAMPLE_ROWS / n_rows, 1.0)
            seeds = draw_seeds(self.get_params(deep=False)["random_state"], 1)
            salt = int(generator_of(seeds[0]).integers(2**63))
        sample = draw_sample(pieces, plain, salt, share)
        if not self._by_cells(round(sample.n_distinct / share)):
            # There are few rows, or inputs repeat: distinct ones are few enough to be leaves.
            if share < 1.0:
                sample = draw_sample(pieces, plain, salt, 1.0)
            data, columns = read_table(sample.X, self, categorical=self.categorical_features)
            return self._fit_read(data, columns, sample.y, sample.weight, None)
        state, told = self._fit_whole(pieces, sample, plain, began)
        self._restore(state)
        tell_warnings(told)
        return self

    @one_blas_thread()
    @device_work()
    def _fit_whole(
        self, pieces: Pieces, sample: Sample, plain: Any, began: float
    ) -> tuple[ModelState, list[Warning]]:
        """Train on a sample, and sum all rows into cells; as `_fit_rows` otherwise."""
        settings, parameters = self._settings(), self.get_params(deep=False)
        data, columns = read_table(sample.X, self, categorical=self.categorical_features)
        check_finite(data, columns.names, missing=True)
        rows = read_rows(data, sample.y, sample.weight, None)
        groups = group_targets(rows.n_targets, parameters.get("multi_target", "own"))
        seeds = draw_seeds(parameters["random_state"], len(groups))
        used = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
        data, columns = sort_categories(data, columns, used)
        passed = rows = replace(rows, X=data).select(np.flatnonzero(used))
        skipped = list[str]()
        transforms = fit_transforms(
            self.target_transform,
            passed,
            lambda t: choose_by_mixtures(self, passed, columns, t, seeds[0], skipped),
        )
        rows = transform_rows(passed, transforms)
        mean, scale = location_and_scale(rows.y, rows.weight)
        counted = rows.weight
        if counted is not None and self.weights == "precision":
            counted = np.ones(rows.n_rows)
        layout, working = fit_layout(rows.features, columns, rows.y, counted)
        rows = replace(rows, X=working)
        learned = fold_rows(rows, self.weights, scale, twins=False)
        if learned.rows.scatter is None:  # otherwise it is in these units
            mean, scale = location_and_scale(learned.rows.y, learned.rows.weight)
        reader = Reader(plain, columns, layout, transforms, mean, scale, tuple(range(mean.size)))
        survey = pieces.reduce(partial(survey_piece, reader=reader), join_surveys)
        if survey.least * MOST_RATIO < survey.weight:
            raise ValueError(
                f"sample_weight must not differ by more than a factor of {MOST_RATIO:g} if rows "
                f"are summed up by cell, got {survey.least:g} and {survey.weight:g}"
            )
        corners = np.stack([survey.low, survey.high]).astype(working.dtype)
        names = layout.names(columns.names)
        boxed = Rows(np.zeros((rows.n_rows + 2, 1)), X=np.concatenate([working, corners]))
        encoders = self._encoders(boxed, settings, layout)
        for encoder in encoders if names is not None else ():
            encoder.feature_names_in_ = np.array(names, dtype=object)
        place = sample.place[used]
        held = rows.select(place < HELD_ROWS / pieces.n_rows) if rows.n_rows > HELD_ROWS else rows
        folded = fold_rows(held, self.weights, scale, twins=False)
        unit, distinct = folded.unit, folded.rows
        if folded.copies and self.weights == "precision" and distinct.weight is not None:
            # Copies have their mean weight. Cells have the sum: the unit is that of mean copies.
            assert folded.index is not None
            number = np.bincount(folded.index) / (held.n_rows / distinct.n_rows)
            unit *= held.n_rows / distinct.n_rows
            distinct = replace(distinct, weight=distinct.weight * number)
        observations = folded.observations((held.y - mean) / scale)
        wholes = [
            Whole(
                pieces=pieces,
                read=replace(reader, targets=tuple(group)),
                sample=standardise(learned.rows, mean, scale).targets(group),
                n_rows=survey.n_used,
                n_summed=pieces.n_rows - held.n_rows,
                units=survey.units(group),
                unit=unit,
                divided=self.weights == "precision",
                most_cells=int(self._most_cells()),
            )
            for group in groups
        ]
        trained, ended_by, left_out = self._train_targets(
            encoders,
            standardise(distinct, mean, scale),
            observations,
            settings,
            groups,
            seeds,
            began,
            wholes,
        )
        left_out = [*skipped, *left_out]
        stopped = bool(left_out) or any(part.stopped for part in trained)
        n, low, high = pieces.n_rows, survey.low, survey.high
        plan = new_plan(replace(passed, X=working), trained[0].fitted.n_rows)
        plan = replace(plan, n_rows=n, n_fit=n, n_calibrated=n, n_aside=survey.n_aside)
        plan = replace(plan, low=low, high=high, lowest=low, highest=high)
        stream = Stream(
            encoders=encoders,
            mean=mean,
            scale=scale,
            columns=columns,
            layout=layout,
            fitted=tuple(part.fitted for part in trained),
            kept=None,
            observations=observations,
            plan=plan,
            seeds=seeds,
            transforms=transforms,
            divided=self.weights == "precision",
        )
        state = self._fitted_state(stream, sample.y.ndim == 1, stopped, trained, began)
        told = copies_warning(folded, held.n_rows)
        if survey.n_aside:
            told.append(
                UserWarning(
                    f"{survey.n_aside:,} of {n:,} rows are left out: they have categories or gaps "
                    "that the sample which columns are learned from does not have"
                )
            )
        if stopped:
            told.append(stop_warning(ended_by, left_out))
        return state, told


def table_pieces(
    X: Any, y: Any, weight: Any, n_threads: int, piece_rows: int = PIECE_ROWS
) -> LocalPieces:
    """A table in memory, or an array that is mapped into memory, in pieces.

    X: array or data frame (n, d). y: (n,) or (n, k). weight: (n,) or None.

    Parameters
    ----------
    X : array or data frame (n, d)
        Features.
    y : array-like (n,) or (n, k)
        Targets.
    weight : array-like (n,) or None
        Sample weights.
    n_threads : int
        Pieces that are read at a time.
    piece_rows : int, default=524288
        Rows per piece.
    """
    n_rows = X.shape[0]
    targets = y if isinstance(y, np.ndarray) else np.asarray(y)
    if targets.shape[:1] != (n_rows,):
        raise ValueError(
            f"X and y must have the same number of rows, got {n_rows} and {len(targets)}"
        )
    frame = None if isinstance(X, np.ndarray) else nw.from_native(X)

    def read(k: int) -> Piece:
        some = slice(k * piece_rows, min((k + 1) * piece_rows, n_rows))
        table = np.asarray(X[some]) if frame is None else frame[some].to_native()
        own = None if weight is None else weight[some]
        return Piece(some.start, table, np.asarray(targets[some]), own)

    return LocalPieces(range(0, n_rows, piece_rows), n_rows, read, concat_tables, n_threads)


def concat_tables(tables: Sequence[Any]) -> Any:
    """Tables of one kind, one below the other."""
    if isinstance(tables[0], np.ndarray):
        return np.concatenate(tables)
    return nw.concat([nw.from_native(table) for table in tables], how="vertical").to_native()
