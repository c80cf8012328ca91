"""A sum of trees over the same rows is one Gaussian process: K = K_1 + ... + K_T.

Products and preconditioned solves, likelihood and gradient, training, and a forest conditioned on
data. `triegp.ForestGPRegressor` is the estimator.
"""

from triegp.forest.evidence import Evidence, forest_evidence
from triegp.forest.gradient import ForestGradient, forest_gradient
from triegp.forest.model import ForestModel
from triegp.forest.nystrom import Nystrom, apply_inverse, fit_nystrom
from triegp.forest.operators import (
    Forest,
    forest_diagonal,
    forest_level_products,
    forest_operator,
    forest_product,
)
from triegp.forest.solving import NotConverged, Solution, solve_forest

__all__ = [
    "Evidence",
    "Forest",
    "ForestGradient",
    "ForestModel",
    "NotConverged",
    "Nystrom",
    "Solution",
    "apply_inverse",
    "fit_nystrom",
    "forest_diagonal",
    "forest_evidence",
    "forest_gradient",
    "forest_level_products",
    "forest_operator",
    "forest_product",
    "solve_forest",
]
