"""Products with the kernel matrix of rows, approximated in linear time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import low_rank
from triegp.smooth.factor import multiply as multiply_factor
from triegp.smooth.induced import Induced, scale_inputs
from triegp.smooth.kernel import kernel_matrix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


def multiply(induced: Induced, x: Any) -> Floats:
    """K x for x (n,) or (n, k). O(n (m_i + m_v) k).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    x : array-like (n,) or (n, k)
        Vectors to multiply.
    """
    x = np.asarray(x, dtype=np.float64)
    product = multiply_rest(induced, x)
    product[induced.order] += low_rank.multiply(induced.phi, x[induced.order], induced.n_threads)
    return product


def multiply_rest(induced: Induced, x: Any) -> Floats:
    """S S' x for x (n,) or (n, k). O(n m_v k).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    x : array-like (n,) or (n, k)
        Vectors to multiply.
    """
    return multiply_factor(induced.factor, x)


def columns(induced: Induced, rows: Any) -> Floats:
    """K[:, rows], (n, r). O(n (m_i + m_v) r).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    rows : int array (r,)
        Rows whose columns are asked for.
    """
    rows = np.asarray(rows)
    unit = np.zeros((induced.n_rows, rows.size))
    unit[rows, np.arange(rows.size)] = 1.0
    return multiply(induced, unit)


def blocks(induced: Induced, members: Ints) -> Floats:
    """Values of the kernel itself within blocks of rows, (n_blocks, size, size).

    members: int32 (n_blocks, size), rows; -1 marks an unused entry, whose row and column are 0.

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    members : int32 (n_blocks, size)
        Rows of each block.
    """
    out = np.zeros((*members.shape, members.shape[1]))
    scaled = scale_inputs(induced.kernel, induced.X)
    for block, into in zip(members, out, strict=True):
        used = np.flatnonzero(block >= 0)
        into[np.ix_(used, used)] = kernel_matrix(induced.kernel, scaled[block[used]])
    return out
