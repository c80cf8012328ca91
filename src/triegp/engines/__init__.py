"""Engines: the stages from packed codes to posterior, behind one contract."""

from __future__ import annotations

from triegp.engines.choice import choose, device_engine, device_quantiles, threads_of
from triegp.engines.contract import Descent, DeviceEngine, Engine
from triegp.engines.cpu import (
    CpuEngine,
    cells,
    dense,
    draws,
    keyed,
    low_rank,
    matern,
    nearby,
    nearest,
    overlay,
    pairs,
    paths,
    vecchia,
)
from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.mixing import mix_means, mix_moments
from triegp.engines.cpu.packing import pack_positions, place_values
from triegp.engines.cpu.scores import mixture_cdf, mixture_crps
from triegp.engines.cpu.threads import available_cores
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
    "Sums",
    "Tree",
    "Woodbury",
    "available_cores",
    "cells",
    "choose",
    "dense",
    "device_engine",
    "device_quantiles",
    "draws",
    "keyed",
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
    "threads_of",
    "vecchia",
]
