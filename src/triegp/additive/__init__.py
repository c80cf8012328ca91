"""A sum of trees over the same rows as one Gaussian process: K = K_1 + ... + K_T.

Products and preconditioned solves, likelihood and gradient, training, and the forest conditioned on
data. The estimator is `triegp.TrieGPRegressor`.
"""

from triegp.additive.evidence import Evidence, forest_evidence
from triegp.additive.forest import (
    Forest,
    forest_level_products,
    forest_product,
)
from triegp.additive.gradient import ForestGradient, forest_gradient
from triegp.additive.model import ForestModel
from triegp.additive.preconditioner import Nystrom, apply_inverse, make_preconditioner
from triegp.additive.solve import NotConverged, Solution, solve_forest

__all__ = [
    "Evidence",
    "Forest",
    "ForestGradient",
    "ForestModel",
    "NotConverged",
    "Nystrom",
    "Solution",
    "apply_inverse",
    "forest_evidence",
    "forest_gradient",
    "forest_level_products",
    "forest_product",
    "make_preconditioner",
    "solve_forest",
]
