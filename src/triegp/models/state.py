"""The state of a fitted estimator: models, rows, and what decides when it is fitted anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout
from triegp.encoding.quantiser import Quantiser
from triegp.models.curve import TrainingCurve
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations
from triegp.models.transforms import Transform
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]


class Seed(NamedTuple):
    """Source of the random numbers of one model: numpy's SeedSequence as plain integers."""

    entropy: tuple[int, ...]
    key: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What decides when a model is fitted anew. Rows that wait are counted.

    Attributes
    ----------
    n_rows : int
        Rows passed.
    n_fit : int
        Rows passed at the last fit, also if that fit is still to be done.
    n_model : int
        Rows of the models at the last fit that was done.
    n_calibrated : int
        Rows passed at the last calibration.
    n_aside : int
        Rows set aside since the last fit because they lie outside the box.
    low, high : float64 (d,)
        Box of the last fit.
    lowest, highest : float64 (d,)
        Box of all rows.
    level : float64 (k,)
        Targets of the first row.
    varied_at_fit, varied : bool (k,)
        Whether each target took other values than its level, at the last fit and since.
    fit_at, calibrate_at : int
        Rows passed when the next fit or calibration became due; 0 if none is.
    n_newest : int
        Last rows whose weights have not faded yet, if weights fade.
    """

    n_rows: int
    n_fit: int
    n_model: int
    n_calibrated: int
    n_aside: int
    low: Floats
    high: Floats
    lowest: Floats
    highest: Floats
    level: Floats
    varied_at_fit: npt.NDArray[np.bool_]
    varied: npt.NDArray[np.bool_]
    fit_at: int = 0
    calibrate_at: int = 0
    n_newest: int = 0


@dataclass(frozen=True, eq=False)
class Stream:
    """Trained models, their training rows if they are kept, and batches that wait.

    An estimator replaces its stream as a whole, while it holds its lock. So readers in other
    threads see all of a change or none.

    Attributes
    ----------
    fitted : tuple of Fitted
        One for all targets, or one for each.
    encoders : tuple of Quantiser
        Box, percentiles and precision, without shift; one per scaling.
    mean, scale : float64 (n_targets,)
        How targets are standardised, after their transform.
    plan : Plan
        When the model is to be fitted anew; waiting rows are counted.
    seeds : tuple of Seed or None
        Where the random numbers of the last fit came from, one per model; None if not known.
    kept : Rows or None
        All rows inserted so far, as they were passed; None if they are not kept.
    observations : Observations or None
        These rows as they were passed, if several may share a row of the models or some were set
        aside; None if they are the rows of the models.
    columns : Columns
        How the columns of X are read; categories that were added since the fit come last.
    layout : Layout
        How they become working columns, which the models read. Rows with values that the layout
        has not seen are set aside, as rows outside the box.
    waiting : tuple of Rows
        Batches that are checked but not inserted yet, as they were passed.
    transforms : tuple of (Transform or None)
        Transform of each target, None for the identity; empty if no target is transformed.
    ahead : tuple of Fitted
        The models given the first `n_ahead` of the waiting rows, too, for predictions at new rows;
        empty if there are none.
    n_ahead, n_asked : int
        Waiting rows that these models know, and new rows that were predicted since rows wait.
    divided : bool
        Whether weights divide the noise variance of an observation, as they did at the last fit.
    """

    fitted: tuple[Fitted, ...]
    encoders: tuple[Quantiser, ...]
    mean: Floats
    scale: Floats
    plan: Plan
    seeds: tuple[Seed, ...] | None
    kept: Rows | None
    columns: Columns
    layout: Layout
    observations: Observations | None = None
    waiting: tuple[Rows, ...] = ()
    transforms: tuple[Transform | None, ...] = ()
    ahead: tuple[Fitted, ...] = ()
    n_ahead: int = 0
    n_asked: int = 0
    divided: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows passed, without those that wait."""
        model = self.fitted[0]
        held = model.n_rows if self.observations is None else self.observations.n_rows
        return held + model.n_summed


@dataclass(frozen=True, eq=False)
class ModelState:
    """State of a fitted estimator, except for its parameters.

    Attributes
    ----------
    stream : Stream
        The models and their rows.
    one_dimensional : bool
        Whether y came as one vector.
    stopped_early : bool
        Whether the time budget or Ctrl-C ended training.
    n_evaluations : int
        Evaluations of the likelihood with gradient.
    fit_seconds : float
        Wall-clock seconds of the last fit.
    curve : TrainingCurve or None
        Nll per row during the last fit; None if it was not recorded.
    """

    stream: Stream
    one_dimensional: bool
    stopped_early: bool
    n_evaluations: int
    fit_seconds: float
    curve: TrainingCurve | None
