"""SROS algebra: operators that are sums of sparse rank-one matrices (SROS) on nested partitions.

Implements sections 4 and 5 and Appendices A and B of the paper: Cohen, Daulton, Osborne,
"Log-Linear-Time Gaussian Processes Using Binary Tree Kernels", NeurIPS 2022. See `docs/sros.md`.
"""

from triegp.sros.forms import Sros, SymmetricSros, to_sros
from triegp.sros.inversion import (
    InverseSros,
    invert,
    invert_general,
    invert_shared,
    level_traces,
    trace_of_product,
)
from triegp.sros.partitions import Nesting, kernel_partitions, nest
from triegp.sros.products import (
    add,
    as_linear_operator,
    diagonal,
    matvec,
    to_dense,
    transpose,
)
from triegp.sros.regression import (
    GpLikelihood,
    GpRegression,
    gp_likelihood,
    gp_regression,
    kernel_sros,
)

__all__ = [
    "GpLikelihood",
    "GpRegression",
    "InverseSros",
    "Nesting",
    "Sros",
    "SymmetricSros",
    "add",
    "as_linear_operator",
    "diagonal",
    "gp_likelihood",
    "gp_regression",
    "invert",
    "invert_general",
    "invert_shared",
    "kernel_partitions",
    "kernel_sros",
    "level_traces",
    "matvec",
    "nest",
    "to_dense",
    "to_sros",
    "trace_of_product",
    "transpose",
]
