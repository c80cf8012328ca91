"""The part of a model file that an estimator writes, by the estimator's name."""

from __future__ import annotations

from triegp.files.calibration import calibrated
from triegp.files.mixture import pack_ensemble, pack_ensemble_quickly, unpack_ensemble
from triegp.files.state import PartFormat


def format_of(estimator: str) -> PartFormat:
    """The format of BinaryTreeGPRegressor or TrieGPRegressor; loads the modules of that one."""
    if estimator == "BinaryTreeGPRegressor":
        mixture = PartFormat("ensemble", pack_ensemble, unpack_ensemble, pack_ensemble_quickly)
        return calibrated(mixture)
    from triegp.files.additive import pack_forest, unpack_forest

    return calibrated(PartFormat("forest", pack_forest, unpack_forest))
