"""triegp: exact Gaussian-process regression with binary tree kernels, in linear time.

Names are imported on first use, so that `import triegp` itself loads nothing.
"""

from typing import TYPE_CHECKING, Any

from triegp.imports import import_once

if TYPE_CHECKING:
    from triegp.additive.solve import NotConverged
    from triegp.encoding.encoder import BitEncoder
    from triegp.estimators.loading import load
    from triegp.estimators.mixture_regressor import BinaryTreeGPRegressor
    from triegp.estimators.trie_regressor import TrieGPRegressor
    from triegp.estimators.warming import warm_up
    from triegp.files.container import ModelFileError
    from triegp.models.distribution import PredictiveDistribution
    from triegp.models.transformed import TransformedDistribution

__version__ = "0.1.0.dev0"

__all__ = [
    "BinaryTreeGPRegressor",
    "BitEncoder",
    "ModelFileError",
    "NotConverged",
    "PredictiveDistribution",
    "TransformedDistribution",
    "TrieGPRegressor",
    "load",
    "warm_up",
]

_HOMES = {  # where each name is defined
    "BinaryTreeGPRegressor": "triegp.estimators.mixture_regressor",
    "BitEncoder": "triegp.encoding.encoder",
    "ModelFileError": "triegp.files.container",
    "NotConverged": "triegp.additive.solve",
    "PredictiveDistribution": "triegp.models.distribution",
    "TransformedDistribution": "triegp.models.transformed",
    "TrieGPRegressor": "triegp.estimators.trie_regressor",
    "load": "triegp.estimators.loading",
    "warm_up": "triegp.estimators.warming",
}


if not TYPE_CHECKING:  # a type checker would take any other name for granted

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_once(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
