"""Engines: the stages from packed codes to posterior, behind one contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triegp.engines.choice import choose, device_engine, device_quantiles, threads_of
from triegp.engines.contract import Descent, DeviceEngine, Engine
from triegp.engines.cpu import (
    CpuEngine,
    blocked,
    cells,
    dense,
    draws,
    keyed,
    lapack,
    low_rank,
    matern,
    nearest,
    pairs,
)
from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.mixing import mix_means, mix_moments
from triegp.engines.cpu.once import computed_once
from triegp.engines.cpu.packing import pack_positions, place_values
from triegp.engines.cpu.plain import PlainEngine
from triegp.engines.cpu.scores import mixture_cdf, mixture_crps
from triegp.engines.cpu.scratch import return_memory
from triegp.engines.cpu.threads import available_cores, run_each
from triegp.engines.records import (
    Adjoints,
    Candidate,
    Evaluated,
    GridMap,
    Linked,
    Links,
    Located,
    Sums,
    Tree,
    Woodbury,
)
from triegp.imports import import_once

if TYPE_CHECKING:
    from triegp.engines.cpu import nearby, overlay, paths

__all__ = [
    "Adjoints",
    "Candidate",
    "CpuEngine",
    "Descent",
    "DeviceEngine",
    "Engine",
    "Evaluated",
    "GridMap",
    "Linked",
    "Links",
    "Located",
    "PlainEngine",
    "Sums",
    "Tree",
    "Woodbury",
    "available_cores",
    "blocked",
    "cells",
    "choose",
    "computed_once",
    "dense",
    "device_engine",
    "device_quantiles",
    "draws",
    "keyed",
    "lapack",
    "low_rank",
    "matern",
    "mix_means",
    "mix_moments",
    "mixture_cdf",
    "mixture_crps",
    "nearby",
    "nearest",
    "one_blas_thread",
    "overlay",
    "pack_positions",
    "pairs",
    "paths",
    "place_values",
    "return_memory",
    "run_each",
    "threads_of",
]


if not TYPE_CHECKING:  # they load numba, which a mixture without compiled kernels does not need

    def __getattr__(name: str) -> Any:
        if name not in ("nearby", "overlay", "paths"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_once(f"triegp.engines.cpu.{name}")
