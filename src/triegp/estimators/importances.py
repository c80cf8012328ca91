"""Feature importances: shares of variance by feature and by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import forest_level_products
from triegp.additive.model import ForestModel
from triegp.additive.start import depths_of, features_of
from triegp.encoding.encoder import BitEncoder
from triegp.mixture.members import Ensemble, Member
from triegp.tree.operators import factorize_rows, level_products, product, solve
from triegp.tree.order import BitOrder

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Importances:
    """Shares of variance; every array sums to 1.

    Attributes
    ----------
    prior : float64 (n_features,)
        Share of the prior variance of the function, nugget not included.
    explained : float64 (n_features,)
        Share of the variance of the posterior mean over the training rows. Shares can be slightly
        negative, because the contributions of features are not independent.
    prior_by_bit, explained_by_bit : float64 (n_features, n_depths)
        The same by bit, most significant first. A shifted grid has one more bit, its coarsest.
    """

    prior: Floats
    explained: Floats
    prior_by_bit: Floats
    explained_by_bit: Floats


class ImportancesMixin:
    """Public attributes of importances; subclasses implement `_importances`, one per target."""

    one_dimensional_: bool
    _importances: Callable[[], list[Importances]]
    _shape: Callable[[Sequence[Floats]], Floats]

    @property
    def feature_importances_(self) -> Floats:
        """Share of explained variance per feature, (n_features,) or (n_features, n_targets)."""
        return self._shape([part.explained for part in self._importances()])

    @property
    def importances_(self) -> Importances | list[Importances]:
        """Shares of prior and explained variance, by feature and by bit; a list if y was 2-d."""
        parts = self._importances()
        return parts[0] if self.one_dimensional_ else parts


def importances(ensemble: Ensemble, target: int) -> Importances:
    """Importances for one target, averaged over the members by their weights. O(n K)."""
    parts = [_of_member(member, target) for member in ensemble.members]
    width = max(prior.shape[1] for prior, _ in parts)
    prior, explained = (
        sum(
            weight * np.pad(part[which], ((0, 0), (0, width - part[which].shape[1])))
            for weight, part in zip(ensemble.calibrations[target].weight, parts, strict=True)
        )
        for which in (0, 1)
    )
    return Importances(prior.sum(axis=1), explained.sum(axis=1), prior, explained)


def forest_importances(model: ForestModel) -> Importances:
    """Importances of a forest. O(n T)."""
    f = model.rows.y - model.variance * model.alpha  # K alpha, the posterior mean
    weight = model.rows.weight
    count = np.ones_like(f) if weight is None else weight
    centred = count * (f - np.average(f, weights=count))
    by_level = forest_level_products(model.forest, centred, model.alpha)
    width = max(int(encoder.precision_.max()) for encoder in model.encoders)
    prior, explained = np.zeros((2, model.encoders[0].n_features_in_, width))
    for encoder, order, products in zip(model.encoders, model.orders, by_level, strict=True):
        weights = -np.diff(order.levels)
        for total, part in ((prior, weights), (explained, weights * products[1:])):
            own = _sum_by_feature(part, encoder, order)
            total[:, : own.shape[1]] += own
    prior, explained = _share(prior), _share(explained)
    return Importances(prior.sum(axis=1), explained.sum(axis=1), prior, explained)


def _of_member(member: Member, target: int) -> tuple[Floats, Floats]:
    """Prior and explained shares of a member, (n_features, largest precision) each.

    The posterior mean is f = sum_l w_l K_l alpha, so level l explains w_l f' K_l alpha of f' f.
    """
    posterior = member.posteriors[target]
    order, rows = member.order, posterior.rows
    n_levels = order.n_levels
    weights = order.weights[:n_levels]  # the scale cancels in shares
    factor = factorize_rows(posterior.trie, order.levels, rows)
    alpha = solve(factor, rows.y)
    f = product(posterior.trie, order.levels, alpha)  # the posterior mean
    count = np.ones_like(f) if rows.weight is None else rows.weight
    centred = count * (f - np.average(f, weights=count))
    by_level = weights * level_products(posterior.trie, centred, alpha)[1:]
    return _by_feature(weights, member), _by_feature(by_level, member)


def _by_feature(by_level: Floats, member: Member) -> Floats:
    return _share(_sum_by_feature(by_level, member.encoder, member.order))


def _sum_by_feature(by_level: Floats, encoder: BitEncoder, order: BitOrder) -> Floats:
    """Values by level, arranged by feature and bit, (n_features, largest precision)."""
    out = np.zeros((encoder.n_features_in_, int(encoder.precision_.max())))
    bits = order.key_bits
    np.add.at(out, (features_of(encoder)[bits], depths_of(encoder)[bits]), by_level)
    return out


def _share(parts: Floats) -> Floats:
    """Parts divided by their sum; equal shares if the sum is not positive."""
    total = float(parts.sum())
    return parts / total if total > 0 else np.full_like(parts, 1.0 / parts.size)
