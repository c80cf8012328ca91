"""The joint distribution of the latent function f at m points, as a tree over these points.

The trie of the n data rows is contracted to a trie over the m points. Along each of its edges, the
data reduce to one Gaussian transition, f_low | f_up ~ N(gain f_up + shift, var). The contraction
takes O(n + m) and a sort of the points. Means, samples and covariance products then take O(m) per
column.

Means, samples and dense covariances lie in the memory of the points' codes, on the host or on a
device. A covariance product lies in the memory of the vector that was multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_columns
from triegp.devices import like
from triegp.encoding.codes import Codes, inner_rows, select_codes
from triegp.engines import Engine, pairs, threads_of
from triegp.imports import scipy
from triegp.tree.order import BitOrder
from triegp.tree.posterior import Posterior
from triegp.tree.trie import Trie, build_trie, insert_rows

BLOCK_FLOATS = 1 << 23  # largest block of columns when a dense matrix is built, in floats

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Joint:
    """Joint distribution of f at m points.

    Attributes
    ----------
    trie : Trie or None
        Trie over the points inside the training box; None if there are none.
    edges : float64 (2 m_inside, 3)
        (gain, shift, var) of the edge above every id of `trie`, in its engine's memory.
    inner : int64 (m_inside,)
        Indices of the points inside the box, in the memory of the codes. All other points are
        independent of the data and of each other.
    n_points : int
        Number of points, m.
    prior_variance : float
        Prior variance of f.
    """

    trie: Trie | None
    edges: Floats
    inner: npt.NDArray[np.int64]
    n_points: int
    prior_variance: float


def joint_prior(codes: Codes, order: BitOrder, *, engine: Engine | None = None) -> Joint:
    """Return the joint prior of f at the m given rows. O(m) and a sort of the rows.

    Parameters
    ----------
    codes : Codes
        The m rows.
    order : BitOrder
        Bit order and levels.
    engine : Engine, optional
        Who computes; the CPU on all cores by default.
    """
    inner = inner_rows(codes)
    trie = build_trie(select_codes(codes, inner), order, engine=engine) if inner.size else None
    edges = np.zeros((0, 3))
    if trie is not None:
        n, links = trie.n_rows, trie.links
        silent = np.full(2 * n, np.inf)
        everyone = np.arange(n, dtype=np.int32)
        edges = trie.engine.contract(links, order.levels, np.zeros(2 * n), silent, everyone, n)
    return Joint(trie, edges, inner, codes.n_rows, order.prior_variance)


def joint_posterior(posterior: Posterior, codes: Codes) -> Joint:
    """Return the joint posterior of f at the m given rows. O(n + m) and a sort of the m rows.

    Parameters
    ----------
    posterior : Posterior
        Returned by `condition`.
    codes : Codes
        The m rows.
    """
    inner = inner_rows(codes)
    order = posterior.order
    if codes.n_bits != order.n_bits:
        raise ValueError(f"codes must have {order.n_bits} bits, got {codes.n_bits}")
    if not inner.size:
        return Joint(None, np.zeros((0, 3)), inner, codes.n_rows, order.prior_variance)
    points = select_codes(codes, inner)
    old = posterior.trie
    trie = build_trie(points, order, engine=old.engine)
    union, _ = insert_rows(old, posterior.keys, points)
    # The points enter the trie as leaves without data: their messages have infinite variance.
    is_new = union.row_idx >= old.n_rows
    leaf_m, leaf_s = (part[: old.n_rows] for part in posterior.inside)
    m = np.zeros_like(leaf_m, dtype=np.float64, shape=(2 * union.n_rows,))
    s = np.full_like(m, np.inf)
    m[: union.n_rows][~is_new], s[: union.n_rows][~is_new] = leaf_m, leaf_s
    engine = union.engine
    engine.inside(union.links, order.levels, m, s)
    chosen = np.where(is_new, np.cumsum(is_new) - 1, -1).astype(np.int32)
    edges = engine.contract(union.links, order.levels, m, s, chosen, inner.size)
    return Joint(trie, edges, inner, codes.n_rows, order.prior_variance)


def joint_mean(joint: Joint) -> Floats:
    """Return the mean of f at the points, (m,). O(m).

    Parameters
    ----------
    joint : Joint
        Joint distribution of f at m points.
    """
    zeros = np.zeros((2 * joint.inner.size, 1))
    return _fill(joint, lambda trie: trie.engine.draw(trie.links, joint.edges, zeros), 1)[:, 0]


def draw_samples(joint: Joint, n_samples: int, rng: np.random.Generator) -> Floats:
    """Draw exact joint samples of f, (m, n_samples). O(m n_samples).

    Parameters
    ----------
    joint : Joint
        Returned by `joint_prior` or `joint_posterior`.
    n_samples : int
        Number of samples, at least 1.
    rng : numpy.random.Generator
        Random number generator.
    """
    if isinstance(n_samples, bool) or not hasattr(n_samples, "__index__") or n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
    if not hasattr(rng, "standard_normal"):
        raise ValueError(f"rng must be a numpy.random.Generator, got {rng!r}")
    normals = rng.standard_normal((2 * joint.inner.size, n_samples))
    samples = _fill(
        joint, lambda trie: trie.engine.draw(trie.links, joint.edges, normals), n_samples
    )
    beyond = _beyond(joint)
    sd = np.sqrt(joint.prior_variance)
    samples[beyond] = like(sd * rng.standard_normal((beyond.size, n_samples)), joint.inner)
    return samples


def covariance_product(joint: Joint, x: Any) -> Floats:
    """Multiply the covariance matrix of f at the points by x, (m,) or (m, c). O(m c).

    Parameters
    ----------
    joint : Joint
        Joint distribution of f at m points.
    x : array-like (m,) or (m, c)
        Vectors to multiply.
    """
    array = finite_columns("x", x, joint.n_points, lambda values: like(values, joint.inner))
    columns = array.reshape(joint.n_points, -1)

    def multiply(trie: Trie) -> Floats:
        inner = trie.sort(trie.engine.hold(columns[joint.inner]))
        return trie.engine.covariance_product(trie.links, joint.edges, inner)

    product = _fill(joint, multiply, columns.shape[1])
    beyond = _beyond(joint)
    product[beyond] = joint.prior_variance * columns[beyond]
    out: Floats = like(product.reshape(array.shape), x)
    return out


def covariance_operator(joint: Joint) -> scipy.sparse.linalg.LinearOperator:
    """Return the covariance of f at the points as a symmetric LinearOperator of scipy, (m, m).

    Parameters
    ----------
    joint : Joint
        Joint distribution of f at m points.
    """

    def multiply(x: Floats) -> Floats:
        return covariance_product(joint, x)

    shape = (joint.n_points, joint.n_points)
    return scipy.sparse.linalg.LinearOperator(
        shape, matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply, dtype=float
    )


def dense_covariance(joint: Joint) -> Floats:
    """Return the covariance of f at the points as a matrix (m, m). O(m^2) time and memory.

    Parameters
    ----------
    joint : Joint
        Joint distribution of f at m points.
    """
    m = joint.n_points
    out = np.empty_like(joint.inner, dtype=np.float64, shape=(m, m))
    width = max(BLOCK_FLOATS // max(m, 1), 1)
    for start in range(0, m, width):
        block = np.zeros((m, min(width, m - start)))
        block[np.arange(start, start + block.shape[1]), np.arange(block.shape[1])] = 1.0
        out[:, start : start + width] = covariance_product(joint, like(block, joint.inner))
    symmetric: Floats = 0.5 * (out + out.T)  # remove asymmetry due to rounding
    return symmetric


def group_covariance(joint: Joint, groups: npt.NDArray[np.int64]) -> Floats:
    """Covariance of f within groups of points, (g, q, q), on the host. O(m + g q^2 depth).

    groups: int64 (g, q), indices of points; the joint distribution must lie on the host.
    """
    place = np.full(joint.n_points, -1, np.int64)
    if joint.trie is None:
        out = np.zeros((*groups.shape, groups.shape[1]))
    else:
        trie = joint.trie
        place[joint.inner[trie.row_idx]] = np.arange(trie.n_rows)
        out = pairs.group_covariances(
            trie.links, joint.edges, place[groups], threads_of(trie.engine)
        )
    beyond = place[groups] < 0
    same = groups[:, :, None] == groups[:, None, :]
    return np.where(same & beyond[:, :, None], joint.prior_variance, out)


def _fill(joint: Joint, work: Callable[[Trie], Floats], n_columns: int) -> Floats:
    """Return values (m, c) in the order of the points.

    `work(trie)` returns the values of the points inside the box, in key order. All others are 0.
    """
    out = np.zeros_like(joint.inner, dtype=np.float64, shape=(joint.n_points, n_columns))
    if joint.trie is not None:
        out[joint.inner] = like(joint.trie.unsort(work(joint.trie)), joint.inner)
    return out


def _beyond(joint: Joint) -> npt.NDArray[np.int64]:
    """Return the indices of the points outside the box, in the memory of `joint.inner`."""
    outside = np.ones_like(joint.inner, dtype=np.bool_, shape=(joint.n_points,))
    outside[joint.inner] = False
    return np.flatnonzero(outside)
