"""Engines: the stages from packed codes to posterior, behind one small protocol."""

from __future__ import annotations

from triegp.engines.contract import (
    Adjoints,
    Candidate,
    Descent,
    Engine,
    Evaluated,
    Links,
    Located,
    Sums,
    Tree,
    Woodbury,
)
from triegp.engines.cpu import CpuEngine, available_cores
from triegp.engines.cpu.cutting import pack_positions

__all__ = [
    "Adjoints",
    "Candidate",
    "CpuEngine",
    "Descent",
    "Engine",
    "Evaluated",
    "Links",
    "Located",
    "Sums",
    "Tree",
    "Woodbury",
    "available_cores",
    "pack_positions",
]
