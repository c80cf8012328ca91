"""LAPACK and BLAS for threads: scipy's own wrappers hold the interpreter's lock while they work.

The routines are those that scipy hands to Cython. Matrices are float64 or float32, with contiguous
rows; parts of a matrix will do. Of symmetric matrices and factors only lower triangles are read and
written. Fortran sees transposes, so that these are upper triangles there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.imports import scipy

Matrix = npt.NDArray[np.float64] | npt.NDArray[np.float32]


def cholesky(matrix: Matrix) -> bool:
    """Write L of a matrix L L' over it; False if it is not positive definite to rounding."""
    return _report("potrf", b"U", matrix.shape[0], matrix)


def factorise(matrix: Matrix, jitter: float) -> Matrix:
    """L of a matrix plus jitter; above its diagonal there is something else.

    The jitter is ten times as large as long as the matrix is not positive definite.
    """
    added = jitter
    while True:
        trial = matrix.copy()
        trial[np.diag_indices_from(trial)] += added
        definite = cholesky(trial)
        if not np.isfinite(added * trial[-1, -1]):
            raise np.linalg.LinAlgError("a covariance matrix is not finite")
        if definite:
            return trial
        added *= 10.0


def invert(factor: Matrix) -> bool:
    """Write (L L')^-1 over L; False if there is none."""
    return _report("potri", b"U", factor.shape[0], factor)


def invert_factor(factor: Matrix) -> bool:
    """Write L^-1 over L; False if there is none."""
    return _report("trtri", b"U", b"N", factor.shape[0], factor)


def divide(factor: Matrix, x: Matrix) -> None:
    """x <- L^-1 x for x (n, k)."""
    _call("trsm", b"R", b"U", b"N", b"N", *x.shape[::-1], 1.0, factor, x)


def divide_transposed(factor: Matrix, x: Matrix) -> None:
    """x <- L^-T x for x (n, k)."""
    _call("trsm", b"R", b"U", b"T", b"N", *x.shape[::-1], 1.0, factor, x)


def divide_right(factor: Matrix, x: Matrix) -> None:
    """x <- x L^-1 for x (k, n)."""
    _call("trsm", b"L", b"U", b"N", b"N", *x.shape[::-1], 1.0, factor, x)


def divide_right_transposed(factor: Matrix, x: Matrix) -> None:
    """x <- x L^-T for x (k, n)."""
    _call("trsm", b"L", b"U", b"T", b"N", *x.shape[::-1], 1.0, factor, x)


def subtract_squares(rows: Matrix, matrix: Matrix) -> None:
    """matrix <- matrix - rows rows' for rows (n, k)."""
    _call("syrk", b"U", b"T", *rows.shape, -1.0, rows, 1.0, matrix)


def _report(name: str, *arguments: Any) -> bool:
    """Call a routine of LAPACK; whether it succeeded."""
    info = ctypes.c_int(0)
    _call(name, *arguments, info)
    return info.value == 0


def _call(name: str, *arguments: Any) -> None:
    """Call a routine for the type of its matrices, each followed by its leading dimension."""
    dtype = next(part.dtype for part in arguments if isinstance(part, np.ndarray))
    number, prefix = (ctypes.c_double, "d") if dtype == np.float64 else (ctypes.c_float, "s")
    kinds = {bytes: ctypes.c_char, int: ctypes.c_int, float: number}
    given: list[Any] = []
    for part in arguments:
        if not isinstance(part, np.ndarray):
            given.append(kinds[type(part)](part) if type(part) in kinds else part)
            continue
        if part.dtype != dtype or (part.shape[1] > 1 and part.strides[1] != part.itemsize):
            raise ValueError("matrices must have one dtype and contiguous rows")
        given += [part, ctypes.c_int(max(part.strides[0] // part.itemsize, part.shape[1], 1))]
    addresses = [
        part.ctypes.data if isinstance(part, np.ndarray) else ctypes.addressof(part)
        for part in given
    ]
    _routine(prefix + name, len(addresses))(*addresses)


@cache
def _routine(name: str, n_arguments: int) -> Callable[..., None]:
    """A routine by its name with the letter of its type; it takes addresses."""
    modules = (scipy.linalg.cython_lapack, scipy.linalg.cython_blas)
    capsule = next(m.__pyx_capi__[name] for m in modules if name in m.__pyx_capi__)
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    address_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address_of.restype = ctypes.c_void_p
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return made(address_of(capsule, name_of(capsule)))
