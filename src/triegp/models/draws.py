"""Functions drawn from a model: which random numbers they consist of, and how these are keyed.

Every random number of a function is a pure function of the seed of the function and of what the
number belongs to, such as a node of a tree or a row of features. So a function has the same value
at a row whatever other rows are asked, in any order and process.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from triegp.engines import available_cores, keyed

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


class Stream(IntEnum):
    """What random numbers are for. The values are part of what a seed means: never change them."""

    FUNCTION = 1
    TARGET = 2
    MEMBER = 3
    TREE = 4
    BEYOND = 5  # rows that are unrelated to the data
    RUN = 6  # runs of rows observed once, drawn anew
    SLOPE = 7  # lines beyond the training box
    VARIANT = 8  # values in place of unseen ones
    NOISE = 9  # of training rows
    INDUCING = 10
    NEIGHBOURS = 11  # what training rows have beside the inducing rows
    REST = 12  # what neighbours leave of the smooth part
    FADED = 13  # of trees, outside the training box


def function_seeds(seed: int, first: int, n_functions: int) -> Words:
    """Seeds of the functions first, first + 1, ... of a random seed, uint64 (k,)."""
    root = np.array([seed], np.uint64)
    found = [keyed.derive(root, Stream.FUNCTION, first + k) for k in range(n_functions)]
    return np.concatenate(found)


def seeds_for(seeds: Words, stream: Stream, number: int = 0) -> Words:
    """Seeds of one stream of random numbers of each function, uint64 (k,)."""
    return keyed.derive(seeds, int(stream), number)


def normals_of(seeds: Words, stream: Stream, names: npt.NDArray[np.integer]) -> Floats:
    """Standard normals of named things in each function, (m, k). O(m k).

    names: hashes of rows, or numbers, (m,).
    """
    return keyed.normals(seeds_for(seeds, stream), names.astype(np.uint64), available_cores())


def choose_by_weight(seeds: Words, stream: Stream, weight: Floats) -> npt.NDArray[np.int64]:
    """One index per function, drawn by weight, int64 (k,)."""
    edges = np.cumsum(weight)
    at = np.searchsorted(edges, keyed.uniforms(seeds_for(seeds, stream)) * edges[-1], side="right")
    return np.asarray(np.minimum(at, weight.size - 1), np.int64)
