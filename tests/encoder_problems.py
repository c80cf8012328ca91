"""Fitted encoders and columns for the encoder's tests."""

import numpy as np
from hypothesis import strategies as st

from triegp.encoding.encoder import BitEncoder
from triegp.encoding.scaling import FeatureMap, positions, weighted_percentiles

ALL_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALINGS = ["minmax", "ecdf"]
LARGEST = np.finfo(np.float64).max
SMALLEST = np.finfo(np.float64).smallest_subnormal


def fitted(X, **parameters):
    return BitEncoder(**parameters).fit(np.asarray(X))


def column(values):
    return np.asarray(values, dtype=np.float64)[:, None]


def ecdf_positions(values, at):
    """Where the ECDF of `values` puts the points `at`."""
    values, at = np.asarray(values, dtype=float), np.asarray(at, dtype=float)
    knots = weighted_percentiles(values)
    grid = FeatureMap(values.min(keepdims=True), values.max(keepdims=True), knots[None])
    return positions(at[None].copy(), grid)[0]


def n_unique(rows):
    return len(np.unique(rows, axis=0))
