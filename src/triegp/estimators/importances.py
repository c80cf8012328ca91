"""Feature importances: shares of variance by feature and by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import forest_level_products
from triegp.additive.model import ForestModel, column_of
from triegp.additive.start import depths_of, features_of
from triegp.calibration.model import base_of
from triegp.devices import to_host
from triegp.encoding.layout import Layout
from triegp.encoding.quantiser import Quantiser
from triegp.engines import one_blas_thread
from triegp.estimators.units import Target
from triegp.layers.layered import Layered
from triegp.mixture.members import Ensemble, Member
from triegp.models.state import Stream
from triegp.tree.operators import factorize_rows, level_products, product, solve
from triegp.tree.order import BitOrder

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Importances:
    """Shares of variance: of the trees by bit, of a smooth part by feature.

    Attributes
    ----------
    prior : float64 (n_features,)
        Share of the prior variance of the function, nugget not included; sums to 1.
    explained : float64 (n_features,)
        Share of the variance of the posterior mean over the training rows; sums to 1. Shares can be
        slightly negative, because the contributions of features are not independent.
    prior_by_bit, explained_by_bit : float64 (n_features, n_depths)
        The part of the trees in these shares, by bit, most significant first. A shifted grid has
        one more bit, its coarsest.
    prior_smooth, explained_smooth : float64 (n_features,)
        The part of the smooth part; 0 if there is none. Their sums are the shares of the smooth
        part as a whole. Among features it is divided in proportion to 1 / lengthscale^2, for
        standardised inputs. For a slowly varying function these are the shares of its variance.
    """

    prior: Floats
    explained: Floats
    prior_by_bit: Floats
    explained_by_bit: Floats
    prior_smooth: Floats
    explained_smooth: Floats


class ImportancesMixin:
    """Public attributes of importances; subclasses implement `_shares`, of one target.

    Shares of working columns are added up to those of the columns of the table.
    """

    one_dimensional_: bool
    _inserted: Callable[[], Stream]
    _targets: Callable[..., list[Target]]
    _shares: Callable[[Any, int], Importances]
    _shape: Callable[[Sequence[Floats]], Floats]

    @property
    def feature_importances_(self) -> Floats:
        """Share of explained variance per feature, (n_features,) or (n_features, n_targets)."""
        return self._shape([part.explained for part in self._by_column()])

    @property
    def importances_(self) -> Importances | list[Importances]:
        """Shares of prior and explained variance, by feature and by bit; a list if y was 2-d."""
        parts = self._by_column()
        return parts[0] if self.one_dimensional_ else parts

    @one_blas_thread()
    def _by_column(self) -> list[Importances]:
        stream = self._inserted()
        layout = stream.layout
        parts = [self._shares(base_of(t.fitted), t.column) for t in self._targets(stream)]
        return parts if layout.plain else [_sum_columns(part, layout) for part in parts]


def _sum_columns(part: Importances, layout: Layout) -> Importances:
    """Importances by column of the table, from those of the working columns."""

    def add_up(values: Floats) -> Floats:
        out = np.zeros((layout.n_columns, *values.shape[1:]))
        np.add.at(out, layout.source, values)
        return out

    return Importances(**{own.name: add_up(getattr(part, own.name)) for own in fields(part)})


def importances(ensemble: Ensemble, target: int) -> Importances:
    """Importances for one target, averaged over the members by their weights. O(n K)."""
    engine = ensemble.members[0].posteriors[target].trie.engine
    parts = engine.each(lambda _, member: _of_member(member, target), ensemble.members)
    width = max(prior.shape[1] for prior, _ in parts)
    prior, explained = (
        sum(
            weight * np.pad(part[which], ((0, 0), (0, width - part[which].shape[1])))
            for weight, part in zip(ensemble.calibrations[target].weight, parts, strict=True)
        )
        for which in (0, 1)
    )
    nothing = np.zeros(prior.shape[0])
    return Importances(prior.sum(axis=1), explained.sum(axis=1), prior, explained, nothing, nothing)


def forest_importances(model: ForestModel, target: int = 0) -> Importances:
    """Importances of trees and smooth part for one target.

    Shares of the prior variance are those of all targets of the model. O(n T), and a product with
    the smooth part.
    """
    y, alpha = (np.ascontiguousarray(column_of(p, target)) for p in (model.rows.y, model.alpha))
    f = y - model.variance * alpha  # K alpha, the posterior mean
    weight = model.rows.weight
    count = np.ones_like(f) if weight is None else weight
    centred = count * (f - np.average(f, weights=count))
    by_level = forest_level_products(model.forest, centred, alpha)
    width = max(int(encoder.precision_.max()) for encoder in model.encoders)
    prior, explained = np.zeros((2, model.encoders[0].n_working, width))
    for encoder, order, products in zip(model.encoders, model.orders, by_level, strict=True):
        weights = -np.diff(order.levels)
        for total, part in ((prior, weights), (explained, weights * products[1:])):
            own = _sum_by_feature(part, encoder, order)
            total[:, : own.shape[1]] += own
    smooth_prior, smooth_explained = np.zeros((2, prior.shape[0]))
    if model.smooth is not None:
        own = _smooth_shares(model)
        smooth_prior = model.smooth.kernel.scale * own
        part = model.smooth.multiply(alpha[:, None])[:, 0]
        smooth_explained = float(centred @ part) * own
    prior, smooth_prior = _share(prior, smooth_prior)
    explained, smooth_explained = _share(explained, smooth_explained)
    return Importances(
        prior.sum(axis=1) + smooth_prior,
        explained.sum(axis=1) + smooth_explained,
        prior,
        explained,
        smooth_prior,
        smooth_explained,
    )


def layered_importances(fitted: Layered, target: int) -> Importances:
    """Importances of all layers for one target. O(n K) for a mixture of K trees.

    Each layer weighs as much as the variance that it explains, among the rows that it was
    conditioned on. Main effects count as a smooth part.
    """
    base, rest, effects = fitted.base, fitted.rest, fitted.below.effects
    layers = [forest_importances(base.model, target), importances(rest, target)]
    model, left = base.model, rest.residuals(target)
    f = column_of(model.rows.y, target) - model.variance * column_of(model.alpha, target)
    better = float(np.mean(np.square(left.y)) - np.mean(np.square(left.y - left.mean)))
    gain = fitted.below.gain[target]
    sizes = [float(gain**2 * f.var()), fitted.scale[target] ** 2 * max(better, 0.0)]
    own = np.zeros(layers[0].prior.size)
    own[effects.features] = effects.spread[:, target]
    total = sum(sizes) + own.sum()
    shares = np.array(sizes) / total if total > 0 else np.full(2, 0.5)
    width = max(part.prior_by_bit.shape[1] for part in layers)

    def join(name: str) -> Floats:
        parts = [getattr(part, name) for part in layers]
        if parts[0].ndim > 1:
            parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
        found = shares[0] * parts[0] + shares[1] * parts[1]
        return np.asarray(found if found.ndim > 1 or total <= 0 else found + own / total)

    return Importances(*(join(field.name) for field in fields(Importances)))


def _smooth_shares(model: ForestModel) -> Floats:
    """Share of each feature in the smooth part, by inverse squared lengthscales, (n_features,)."""
    assert model.smooth is not None
    inverse = model.smooth.kernel.lengthscale**-2.0
    found = np.bincount(model.coordinates.feature_of, inverse, model.encoders[0].n_working)
    return np.asarray(found / found.sum())


def _of_member(member: Member, target: int) -> tuple[Floats, Floats]:
    """Prior and explained shares of a member, (n_features, largest precision) each.

    The posterior mean is f = sum_l w_l K_l alpha, so level l explains w_l f' K_l alpha of f' f.
    """
    posterior = member.posteriors[target]
    order, rows = member.order, posterior.rows
    n_levels = posterior.trie.n_levels  # bits after these, if there are any, have weight 0
    weights, levels = order.weights[:n_levels], order.levels[: n_levels + 1]
    factor = factorize_rows(posterior.trie, levels, rows)  # the scale cancels in shares
    alpha = solve(factor, rows.y)
    f = product(posterior.trie, levels, alpha)  # the posterior mean
    count = np.ones_like(f) if rows.weight is None else rows.weight
    centred = count * (f - np.average(f, weights=count))
    by_level = weights * to_host(level_products(posterior.trie, centred, alpha))[1:]
    return _by_feature(weights, member), _by_feature(by_level, member)


def _by_feature(by_level: Floats, member: Member) -> Floats:
    return _share(_sum_by_feature(by_level, member.encoder, member.order))[0]


def _sum_by_feature(by_level: Floats, encoder: Quantiser, order: BitOrder) -> Floats:
    """Values by level, arranged by feature and bit, (n_features, largest precision)."""
    out = np.zeros((encoder.n_working, int(encoder.precision_.max())))
    bits = order.key_bits[: by_level.size]
    np.add.at(out, (features_of(encoder)[bits], depths_of(encoder)[bits]), by_level)
    return out


def _share(trees: Floats, smooth: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Parts divided by the sum of all; equal shares of the trees if the sum is not positive."""
    total = float(trees.sum()) + float(np.sum(smooth))
    if total > 0:
        return trees / total, np.asarray(smooth / total)
    return np.full_like(trees, 1.0 / trees.size), np.zeros_like(smooth)
