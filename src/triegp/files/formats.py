"""The part of a model file that an estimator writes, by the estimator's name."""

from __future__ import annotations

from functools import partial

from triegp.engines import Engine
from triegp.files.calibration import calibrated
from triegp.files.mixture import pack_ensemble, pack_ensemble_quickly, unpack_ensemble
from triegp.files.state import PartFormat
from triegp.imports import import_once


def format_of(estimator: str, engine: Engine | None = None) -> PartFormat:
    """The format of BinaryTreeGPRegressor or TrieGPRegressor; loads the modules of that one.

    engine: restores mixtures; the default is the CPU engine, on all cores.
    """
    if estimator == "BinaryTreeGPRegressor":
        unpack = partial(unpack_ensemble, engine=engine)
        mixture = PartFormat("ensemble", pack_ensemble, unpack, pack_ensemble_quickly)
        return calibrated(mixture, engine)
    forest = import_once("triegp.files.additive")
    return calibrated(PartFormat("forest", forest.pack_forest, forest.unpack_forest))
