"""A mixture with a few more rows than its tries hold: O(depth) per tree to add a row or predict.

The tries stay as they are, and the new rows lie in an overlay (`engines/cpu/overlay.py`). Adding
rows returns a new record, and the old one predicts what it did before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.engines import computed_once, overlay, paths, threads_of
from triegp.mixture.draws import MemberDraws
from triegp.mixture.members import FEWEST_APIECE, Ensemble, Member
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Residuals
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows, join_rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MAX_PARTS = 256  # parts of added rows beyond this number are joined into one


class Base(NamedTuple):
    """What an overlay needs of the members.

    noise: float64 (K, n_targets), noise and nugget of each member and target.
    """

    tries: overlay.Tries
    keys: paths.Keys
    noise: Floats


@dataclass(frozen=True, eq=False)
class GrowingEnsemble:
    """A mixture given the rows of its members and a few more; implements `Fitted`.

    Predictions at new rows take O(D) per tree. Everything else inserts the rows first, in O(n) per
    tree.

    Attributes
    ----------
    ensemble : Ensemble
        The mixture without the added rows, on the host.
    base : Base
        Its tries and messages, for the kernels.
    over : overlay.Overlay
        The added rows.
    added : tuple of Rows
        The same rows, in standardised units, with features.
    """

    ensemble: Ensemble
    base: Base
    over: overlay.Overlay
    added: tuple[Rows, ...]

    @computed_once
    def whole(self) -> Ensemble:
        """The mixture with the added rows in its tries; O(n) per tree on first use."""
        return self.ensemble.insert(join_rows(self.added))

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.ensemble.n_targets

    @property
    def n_rows(self) -> int:
        """Number of rows of the model."""
        return self.ensemble.n_rows + self.over.n_rows

    @property
    def n_summed(self) -> int:
        """Number of training rows of which the model keeps sums only: 0."""
        return self.ensemble.n_summed

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return self.whole.n_observations

    @property
    def on_host(self) -> bool:
        """Whether the model lies in the host's memory: always."""
        return True

    @property
    def goes_on(self) -> bool:
        """Whether the function goes on outside the training box: never."""
        return self.ensemble.goes_on

    def read(self, X: Array, *, var: bool) -> list[Codes]:
        """Codes of rows on every member's grid."""
        return self.ensemble.read(X, var=var)

    def predict(
        self, points: list[Codes], column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at m new rows, as `Ensemble.predict` has it. O(K m D)."""
        n_new = points[0].n_rows
        n_threads = threads_of(self.ensemble.engine) if n_new >= FEWEST_APIECE else 1
        mean, total, run = overlay.predict_rows(
            self.base.tries,
            self.over,
            paths.read_keys(self.base.keys, [codes.packed for codes in points]),
            column,
            self.ensemble.apart,
            n_threads,
        )
        if not var:
            total[:] = 0.0
        elif self.ensemble.without_run(column, var=var, latent=latent):
            total -= run
        for k, codes in enumerate(points):
            if codes.unrelated is not None:
                prior = self.ensemble.members[k].posteriors[column].order.prior_variance
                mean[k, codes.unrelated], total[k, codes.unrelated] = 0.0, prior if var else 0.0
        return self.ensemble.mix_members(column, mean, total, var=var, latent=latent)

    def predict_covariance(
        self, points: list[Codes], column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the mixture."""
        return self.whole.predict_covariance(points, column, latent=latent)

    def group_covariance(
        self, points: list[Codes], column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of f, and covariances within groups of rows, (g, q, q)."""
        return self.whole.group_covariance(points, column, groups)

    def sample(
        self,
        points: list[Codes],
        column: int,
        n_samples: int,
        rng: np.random.Generator,
        *,
        latent: bool,
    ) -> Floats:
        """Joint samples, (m, n_samples)."""
        return self.whole.sample(points, column, n_samples, rng, latent=latent)

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time: any number."""
        return self.ensemble.draw_rows

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> MemberDraws:
        """Functions with these seeds (k,)."""
        return self.ensemble.prepare_draws(column, seeds)

    def evaluate_draws(
        self,
        points: list[Codes],
        column: int,
        draws: MemberDraws,
        names: npt.NDArray[np.uint64],
    ) -> Floats:
        """Functions at m rows, (m, k)."""
        return self.whole.evaluate_draws(points, column, draws, names)

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows; noise included."""
        return self.whole.leave_one_out(column, observations)

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training; always."""
        return self.ensemble.quick_residuals

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows without the observations at these rows."""
        return self.whole.residuals(column)

    def stand(self, *, apart: bool) -> GrowingEnsemble:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        return replace(self, ensemble=self.ensemble.stand(apart=apart))

    def noise(self, column: int) -> float:
        """Noise variance of a new observation, averaged over the members."""
        return self.ensemble.noise(column)

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        return self.whole.observed(column)

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        return self.whole.log_evidence(column)

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added."""
        self.ensemble.check(rows)

    def insert(self, rows: Rows) -> GrowingEnsemble:
        """The mixture given k more rows, which must have features. O(K k D)."""
        points = self.read(rows.features, var=False)
        n_threads = threads_of(self.ensemble.engine) if rows.n_rows >= FEWEST_APIECE else 1
        noise = self.base.noise[:, None, :]
        if rows.known_noise is not None:
            noise = noise + rows.known_noise.reshape(rows.n_rows, -1)
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        with np.errstate(divide="ignore"):
            variance = noise / weight[:, None]
        shape = (noise.shape[0], rows.n_rows, self.n_targets)
        over = overlay.append_rows(
            self.base.tries,
            self.over,
            paths.read_keys(self.base.keys, [codes.packed for codes in points]),
            np.ascontiguousarray(rows.y, np.float64),
            np.ascontiguousarray(np.broadcast_to(variance, shape)),
            (weight if rows.copies is None else rows.copies) <= 1.0,
            n_threads,
        )
        added = (*self.added, rows)
        if len(added) > MAX_PARTS:
            added = (join_rows(added),)
        return replace(self, over=over, added=added)


def grow_ensemble(ensemble: Ensemble) -> GrowingEnsemble | None:
    """The mixture, ready for more rows; None if its rows can only be inserted. O(K).

    That is the case on a device, with messages of float32, and if the leaves are cells.
    """
    first = ensemble.members[0].posteriors[0]
    if not ensemble.on_host or ensemble.held is not None or first.dtype != np.float64:
        return None
    posteriors = [member.posteriors[0] for member in ensemble.members]
    tries = overlay.hold_tries(
        [one.trie.links for one in posteriors],
        [one.keys for one in posteriors],
        [one.order.levels for one in posteriors],
        [one.trie.row_idx for one in posteriors],
        [one.rows.weight if one.rows.copies is None else one.rows.copies for one in posteriors],
        [[one.inside for one in member.posteriors] for member in ensemble.members],
    )
    noise = np.array([_noise(member) for member in ensemble.members])
    base = Base(tries, paths.key_bits([one.trie.bits for one in posteriors]), noise)
    return GrowingEnsemble(ensemble, base, overlay.new_overlay(tries), ())


def _noise(member: Member) -> list[float]:
    return [posterior.new_noise for posterior in member.posteriors]
