"""Posterior variances from training rows near a query, by blocks of rows.

Rows are clustered into cells of about equal size. A block belongs to a cell: its members are the
rows nearest to the cell's centre. With A = K + noise of the M members and A = L L', it stores the
upper triangle of X = L^-T. The variance of f at a query given the members is ::

    v = k(x, x) - |X' k|^2,    k: covariances with the members,

and 1 / (A^-1)_ii - noise_i, with (A^-1)_ii = sum_j X_ij^2, at member i given the other members. A
query is answered by the block of its nearest centre alone, so the result does not depend on what
else is asked.

Keys lie as uint64 (n, w, T): word by word, the trees side by side.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from triegp.engines.cpu import lapack, scratch
from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.cells import Cells, nearest_members
from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.matern import correlation
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Array, Floats, Ids, Ints, Words

LEAST_NOISE = 1e-10  # of the prior variance, so that equal rows can be factorised
JITTER = 1e-14  # of the prior variance


class Process(NamedTuple):
    """Training rows, and the covariance of f between rows.

    Attributes
    ----------
    keys : uint64 (n, w, T)
        Key of each row in each tree.
    tables : float64 (T, 64 w + 1)
        Covariance of two rows in each tree by the number of leading bits that they share.
    inputs : float64 (n, d)
        Inputs, each divided by its lengthscale.
    code : int
        Correlation function of the smooth part (`matern.correlation`); -1 if there is none.
    scale : float
        Prior variance of the smooth part.
    noise : float64 (n,)
        Noise variance of each row.
    prior : float
        Prior variance of f.
    """

    keys: Words
    tables: Floats
    inputs: Floats
    code: int
    scale: float
    noise: Floats
    prior: float


class Block(NamedTuple):
    """The members of a cell's block and the factor of their inverse covariance.

    Attributes
    ----------
    members : int32 (M,)
        Rising row numbers.
    factor : float32 or float64 (M (M + 1) / 2,)
        Upper triangle of X, row by row.
    radius : float
        Square of the distance beyond which rows are no members.
    """

    members: Ids
    factor: Array
    radius: float


class Queries(NamedTuple):
    """Rows to answer.

    keys: uint64 (m, w, T); inputs: float64 (m, d), scaled; fade: float64 (m,), factor of the tree
    covariances with training rows.
    """

    keys: Words
    inputs: Floats
    fade: Floats


# Covariances


@intrinsic
def _leading_zeros(_, word):
    """Number of leading zeros of a 64-bit word, 64 for 0: one instruction, on several words."""

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


leading_zeros: Any = _leading_zeros


@jit
def covariances(process, members, words, places, keys, inputs, row, fade, count, out):
    """Covariance of f at keys[row], inputs[row] with the first `count` members, to out.

    words, places: from `_gather`.
    """
    n_words = keys.shape[1]
    for i in range(count):
        out[i] = 0.0
    for t in range(words.shape[0]):
        key, table, own = keys[row, 0, t], process.tables[t], words[t]
        same = 0
        for i in range(count):
            out[i] += table[leading_zeros(key ^ own[i])]
            same += key == own[i]
        if same > 0 and n_words > 1:
            for i in range(count):
                if key == own[i]:
                    shared = 64
                    for w in range(1, n_words):
                        more = leading_zeros(keys[row, w, t] ^ process.keys[members[i], w, t])
                        shared += more
                        if more < 64:
                            break
                    out[i] += table[shared] - table[64]
    if fade != 1.0:
        for i in range(count):
            out[i] *= fade
    if process.code >= 0:
        square = np.empty(count)
        for i in range(count):
            square[i] = 0.0
        for k in range(places.shape[0]):
            here, own = inputs[row, k], places[k]
            for i in range(count):
                square[i] += (here - own[i]) ** 2
        for i in range(count):
            out[i] += process.scale * correlation(process.code, square[i])


# Blocks


def make_block(process: Process, cells: Cells, b: int, size: int, dtype: type) -> Block:
    """The block of cell b with `size` members, at most n. O(size^2 T + size^3)."""
    members, radius = nearest_members(process.inputs, b, cells, min(size, cells.rows.size))
    m = members.size
    words, places = _gather(process, members)
    dense = scratch.borrow("nearby_dense", m * m, np.float64).reshape(m, m)
    fill_covariance(process, members, words, places, dense)
    lower = lapack.factorise(dense, JITTER * process.prior)
    lapack.invert_factor(lower)
    return Block(members, lower.T[_upper(m)].astype(dtype), radius)


@cache
def _upper(m: int) -> tuple[Ints, Ints]:
    """Places of the upper triangle of an (m, m) matrix, row by row."""
    return np.triu_indices(m)


def _gather(process: Process, members: Ids) -> tuple[Words, Floats]:
    """First words (T, M) and inputs (d, M) of the members, so that loops over members are tight."""
    m, n_trees, d = members.size, process.tables.shape[0], process.inputs.shape[1]
    words = scratch.borrow("nearby_words", m * n_trees, np.uint64).reshape(n_trees, m)
    places = scratch.borrow("nearby_places", m * d, np.float64).reshape(d, m)
    words[:], places[:] = process.keys[members, 0].T, process.inputs[members].T
    return words, places


@jit
def fill_covariance(process, members, words, places, out):
    """Lower triangle of K + noise of the members, out (M, M)."""
    keys, inputs = process.keys, process.inputs
    for i in range(members.size):
        row = np.int64(members[i])
        covariances(process, members, words, places, keys, inputs, row, 1.0, i, out[i])
        out[i, i] = process.prior + max(process.noise[row], LEAST_NOISE * process.prior)


# Variances


def variances(
    process: Process,
    cells: Cells,
    blocks: MutableMapping[int, Block],
    queries: Queries,
    cell: Ids,
    size: int,
    dtype: type,
    n_threads: int,
) -> Floats:
    """Variance of f at queries, each from the block of its cell (m,).

    blocks: those made before, by cell; missing ones are made and added.
    """
    out = np.empty(cell.size)

    def answer(b: int, rows: Ids) -> None:
        block = _block(process, cells, blocks, b, size, dtype)
        fill_variances(process, block, *_gather(process, block.members), queries, rows, out)

    _by_block(answer, cell, n_threads)
    return out


def left_out_variances(
    process: Process,
    cells: Cells,
    blocks: MutableMapping[int, Block],
    rows: Ids,
    cell: Ids,
    size: int,
    dtype: type,
    n_threads: int,
) -> Floats:
    """Variance of f at training rows given the other members of their cells' blocks, (m,)."""
    n = process.noise.size
    queries, out = Queries(process.keys, process.inputs, np.ones(n)), np.empty(n)

    def answer(b: int, some: Ids) -> None:
        block, own = _block(process, cells, blocks, b, size, dtype), rows[some]
        at = np.minimum(block.members.searchsorted(own), block.members.size - 1)
        member = block.members[at] == own
        out[own[member]] = _member_variances(process, block)[at[member]]
        words_and_places = _gather(process, block.members)
        fill_variances(process, block, *words_and_places, queries, own[~member], out)

    _by_block(answer, cell, n_threads)
    return out[rows]


def _member_variances(process: Process, block: Block) -> Floats:
    """Variance of f at each member given the others, (M,)."""
    m = block.members.size
    lines = np.append(0, np.cumsum(np.arange(m, 1, -1)))  # where those of the factor begin
    inverse = np.add.reduceat(np.square(block.factor, dtype=np.float64), lines)
    noise = np.maximum(process.noise[block.members], LEAST_NOISE * process.prior)
    return np.clip(1.0 / inverse - noise, 0.0, process.prior)


def _block(process, cells, blocks, b, size, dtype):
    """The block of cell b, made if it is missing. Two threads may make it; both make the same."""
    block = blocks.get(b)
    if block is None:
        block = blocks[b] = make_block(process, cells, b, size, dtype)
    return block


def _by_block(answer, cell, n_threads):
    """Call answer(b, rows) for every cell b that occurs in `cell`, with the rows of that cell."""
    order = np.argsort(cell, kind="stable").astype(np.int32)
    ordered = cell[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: cell.size])
    last = np.append(first[1:], cell.size)[: first.size]
    parts = list(zip(ordered[first].tolist(), first.tolist(), last.tolist(), strict=True))
    with one_blas_thread():
        run_each(lambda part: answer(part[0], order[part[1] : part[2]]), parts, n_threads)


@jit
def fill_variances(process, block, words, places, queries, rows, out):
    """Variances of the queries `rows`, all of one block, written to out[rows]."""
    k, z = np.empty(block.members.size), np.empty(block.members.size)
    for i in range(rows.size):
        row = np.int64(rows[i])  # of one type for all that call `covariances`
        fade = queries.fade[row]
        out[row] = _variance(
            process, block, words, places, queries.keys, queries.inputs, row, fade, k, z
        )


@inline
def _variance(process, block, words, places, keys, inputs, row, fade, k, z):
    """prior - |X'k|^2; k, z: float64 (M,), scratch."""
    members, x = block.members, block.factor
    m = members.size
    covariances(process, members, words, places, keys, inputs, row, fade, m, k)
    for j in range(m):
        z[j] = 0.0
    first, i = 0, 0
    while i + 4 <= m:
        x0 = x[first : first + m - i]
        x1 = x[first + m - i : first + 2 * (m - i) - 1]
        x2 = x[first + 2 * (m - i) - 1 : first + 3 * (m - i) - 3]
        x3 = x[first + 3 * (m - i) - 3 : first + 4 * (m - i) - 6]
        k0, k1, k2, k3 = k[i], k[i + 1], k[i + 2], k[i + 3]
        z[i] += k0 * x0[0]
        z[i + 1] += k0 * x0[1] + k1 * x1[0]
        z[i + 2] += k0 * x0[2] + k1 * x1[1] + k2 * x2[0]
        tail = z[i + 3 :]
        for j in range(m - i - 3):
            tail[j] += (k0 * x0[j + 3] + k1 * x1[j + 2]) + (k2 * x2[j + 1] + k3 * x3[j])
        first += 4 * (m - i) - 6
        i += 4
    while i < m:
        for j in range(i, m):
            z[j] += k[i] * x[first + j - i]
        first += m - i
        i += 1
    explained = 0.0
    for j in range(m):
        explained += z[j] * z[j]
    return max(process.prior - explained, 0.0)


def local_covariances(process: Process, members: Ids, queries: Queries) -> Floats:
    """Covariance of f at queries with the members, (m, M)."""
    words, places = _gather(process, members)
    out = np.empty((queries.fade.size, members.size))
    for i in range(queries.fade.size):
        given = (queries.keys, queries.inputs, i, float(queries.fade[i]), members.size, out[i])
        covariances(process, members, words, places, *given)
    return out


def covariance_of(process: Process, members: Ids) -> Floats:
    """Lower triangle of the covariance of the targets of some training rows, with noise, (M, M)."""
    words, places = _gather(process, members)
    out: Floats = np.empty((members.size, members.size))
    fill_covariance(process, members, words, places, out)
    return out


def covariances_of(process: Process, rows: Ids, members: Ids) -> Floats:
    """Covariance of f at training rows with some of them, (m, M). O(m M T)."""
    queries = Queries(process.keys[rows], process.inputs[rows], np.ones(rows.size))
    return local_covariances(process, members, queries)
