"""Operators that are refused: errors name what is wrong."""

import numpy as np
import pytest

from triegp import sros

# Errors


def symmetric(p=((0, 0), (0, 1)), c=1.0, u=1.0):
    return sros.SymmetricSros(np.array(p), c, u)


CROSSING = [[0, 0, 5], [0, 0, 6], [0, 1, 5], [0, 1, 6]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sros.nest(CROSSING), r"cells of columns 1 and 2 cross"),
        (lambda: sros.invert(symmetric(CROSSING)), r"cells of columns 1 and 2 cross"),
        (lambda: sros.level_traces(symmetric(CROSSING)), r"cells of columns 1 and 2 cross"),
        (
            lambda: sros.trace_of_product(
                symmetric([[0], [0], [1], [1]]), symmetric([[0], [1], [1], [0]])
            ),
            r"cells of columns 0 and 1 cross",
        ),
        (
            lambda: symmetric([[0, 30], [0, 10**18], [1, 10**18]], [[1, 1], [1, 2], [1, 3]]),
            r"coefficient must be constant .* got 2.0 and 3.0 in column 1 .* label 10{18}$",
        ),
        (lambda: symmetric([0, 1]), r"partition must be a two-dimensional integer array"),
        (lambda: symmetric([[0.5]]), r"partition must be .* integer array .* float64"),
        (lambda: symmetric(np.zeros((0, 2), int)), r"at least one row, got int64 \(0, 2\)"),
        (lambda: symmetric([[3, -2]]), r"partition must contain labels from 0 .* got -2"),
        (
            lambda: symmetric(np.array([[2**63]], dtype=np.uint64)),
            r"partition must contain labels from 0 .* got 9223372036854775808",
        ),
        (lambda: symmetric(c=[1.0, np.nan]), r"coefficient must be finite, got nan at .*\(1,\)"),
        (lambda: symmetric(c=np.ones((3, 2))), r"coefficient must have shape \(2, 2\) .* \(3, 2\)"),
        (lambda: symmetric(u=["a", "b"]), r"factor must be an array of real numbers, got <U1"),
        (lambda: symmetric(u=1j), r"factor must be an array of real numbers, got complex128"),
        (
            lambda: sros.Sros([[0, 1]], [[0]], 1.0, 1.0),
            r"row_partition and col_partition must have the same number of columns, got 2 and 1",
        ),
        (lambda: sros.Sros([[0]], [[-1]], 1.0, 1.0), r"col_partition must contain labels .* -1"),
        (
            lambda: sros.Sros([[0]], [[0]], 1.0, [[1.0, 2.0]]),
            r"col_factor must have shape \(1, 1\)",
        ),
        (lambda: sros.matvec(symmetric(), [1.0]), r"x must have shape \(2,\) or \(2, k\)"),
        (lambda: sros.add(symmetric(), symmetric([[0]])), r"same shape, got \(2, 2\) and \(1, 1\)"),
        (lambda: sros.trace_of_product(symmetric(), symmetric([[0]])), r"same shape"),
        (
            lambda: sros.as_linear_operator(sros.Sros([[0]], [[0], [1]], 1.0, 1.0), identity=1.0),
            r"identity must be 0 for an operator of shape \(1, 2\)",
        ),
        (
            lambda: sros.invert_shared(symmetric(u=[[1.0, 1.0], [1.0, 2.0]])),
            r"equal columns, but columns 0 and 1 differ",
        ),
        (lambda: sros.kernel_partitions([0, 1]), r"bits must be a two-dimensional array of 0s"),
        (lambda: sros.kernel_partitions([[0.0, 1.0]]), r"bits must be .* got float64 \(1, 2\)"),
        (lambda: sros.kernel_partitions([[0, 2]]), r"bits must contain 0s and 1s only, got 2"),
        (lambda: sros.kernel_partitions([[0, -1]]), r"bits must contain 0s and 1s only, got -1"),
        (lambda: sros.kernel_sros([[0, 1]], [1.0]), r"weights must have 2 entries, got 1"),
        (lambda: sros.kernel_sros([[0, 1]], [1.0, -2.0]), r"weights must not be negative"),
        (
            lambda: sros.gp_regression([[0, 1]], [1.0], [[1]], [0.5, 0.5], 1.0),
            r"new_bits must have 2 columns, got 1",
        ),
        (lambda: sros.gp_likelihood([[0]], [1.0, 2.0], [1.0], 1.0), r"y must have 1 entries"),
        (lambda: sros.gp_likelihood([[0]], [1.0], [1.0], 0.0), r"noise must be positive"),
        (lambda: sros.gp_likelihood([[0]], [1.0], [1.0], 1e-310), r"weights / noise must be fin"),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("invert", [sros.invert_general, sros.invert_shared])
def test_not_positive_definite(invert):
    message = r"must be positive definite.* got 1 \+ z = {} in column {} on the cell of row {}$"
    for c, what in [([-0.25, -1.5], ("-0.5", 1, 0)), ([-2.0, 0.0], ("-1.0", 0, 0))]:
        with pytest.raises(np.linalg.LinAlgError, match=message.format(*what)):
            invert(symmetric([[0, 0]], c))
    with pytest.raises(np.linalg.LinAlgError, match=message.format("0.0", 0, 2)):
        invert(symmetric([[5, 1], [5, 0], [3, 2]], [[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]))
    with pytest.raises(np.linalg.LinAlgError, match=message.format("inf", 0, 0)):
        invert(symmetric([[0], [0]], 1e308))
