"""Random SROS operators and their dense matrices."""

import numpy as np
import pytest
from hypothesis import strategies as st

from tolerances import DIFFERENCE, GRADIENT, VALUE
from triegp import sros

TOLERANCE = {
    "value": VALUE["rtol"],
    "gradient": GRADIENT["rtol"],
    "difference": DIFFERENCE["rtol"],
}


def close(actual, expected, kind="value"):
    """Compare to a relative tolerance, scaled by the largest entry."""
    expected = np.asarray(expected, dtype=float)
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[kind] * scale)


def dense(rows, cols, u, v):
    """L(P, P', U, U') by its definition."""
    meet = np.asarray(rows)[:, None, :] == np.asarray(cols)[None, :, :]
    return np.einsum("abi,ai,bi->ab", meet, u, v)


def dense_symmetric(operator):
    p, c, u = operator.partition, operator.coefficient, operator.factor
    return dense(p, p, u, c * u)


def nested_partition(rng, n, q, children):
    """Nested labels (n, q): some columns repeat, all are relabelled at random and shuffled."""
    columns = [rng.integers(0, children, n)]
    while len(columns) < q:
        split = rng.integers(0, children, n) if rng.random() < 0.7 else 0
        columns.append(np.unique(columns[-1] * children + split, return_inverse=True)[1])
    for k, column in enumerate(columns):
        top = rng.choice([n + 1, 10**15])
        names = rng.permutation(n + 1) * (top // (n + 1)) + rng.integers(0, 2)
        columns[k] = names[np.unique(column, return_inverse=True)[1]]
    return np.stack(columns, axis=1)[:, rng.permutation(q)]


def random_symmetric(rng, n, q, children=3, shared=False):
    """Return L(P, C, U) with I + L positive definite, condition number at most 200."""
    p = nested_partition(rng, n, q, children)
    u = rng.normal(size=(n, 1 if shared else q)) + np.zeros(q)
    c = np.empty((n, q))
    for k in range(q):
        cell = np.unique(p[:, k], return_inverse=True)[1]
        size = np.bincount(cell, u[:, k] ** 2) + 1e-3
        c[:, k] = (rng.uniform(-0.9, 19.0, size.size) / (q * size))[cell]
    return sros.SymmetricSros(p, c, u)


CASES = [
    pytest.param(n, q, children, id=f"n{n}-q{q}-children{children}")
    for n, q, children in [(1, 1, 3), (1, 4, 2), (2, 1, 1), (9, 4, 1), (12, 1, 4), (40, 6, 3)]
]
SHARED = pytest.mark.parametrize("shared", [False, True], ids=["general", "shared"])


@st.composite
def symmetric_operators(draw, shared=None):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, q, children = draw(st.integers(1, 25)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    return random_symmetric(rng, n, q, children, draw(st.booleans()) if shared is None else shared)
