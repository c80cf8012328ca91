"""A smooth Gaussian process over rows: its kernel, and products with its kernel matrix.

`make_induced` approximates the kernel matrix in linear time. New rows are read by `read`, and
appended by `extend`.
"""

from triegp.smooth.induced import Induced, make_induced
from triegp.smooth.kernel import KERNELS, Kernel
from triegp.smooth.means import Prepared, mean, prepare
from triegp.smooth.points import InducedPoints, cross, draw, own, read
from triegp.smooth.products import blocks, columns, multiply, multiply_rest
from triegp.smooth.stream import extend

__all__ = [
    "KERNELS",
    "Induced",
    "InducedPoints",
    "Kernel",
    "Prepared",
    "blocks",
    "columns",
    "cross",
    "draw",
    "extend",
    "make_induced",
    "mean",
    "multiply",
    "multiply_rest",
    "own",
    "prepare",
    "read",
]
