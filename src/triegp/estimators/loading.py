"""Loading model files: which estimator a file belongs to."""

from __future__ import annotations

from pathlib import Path

from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.binary_tree import BinaryTreeGPRegressor
from triegp.estimators.forest import ForestGPRegressor
from triegp.files.container import ModelFileError, read_file

ESTIMATORS: dict[str, type[TreeGPRegressor]] = {
    kind.__name__: kind for kind in (BinaryTreeGPRegressor, ForestGPRegressor)
}


def load(path: str | Path) -> TreeGPRegressor:
    """Read a model that `save` wrote; predictions are the same bits.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is truncated, edited, foreign, or newer than this version of triegp. Nothing in a file
        is executed, and nothing is half-loaded.
    """
    header, arrays = read_file(path)
    name = header.get("estimator")
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise ModelFileError(f"{path} holds {name!r:.80}, expected one of {', '.join(ESTIMATORS)}")
    try:
        return ESTIMATORS[name]._from_file(header, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelFileError(f"{path} does not hold a whole model: {error!r}") from error
