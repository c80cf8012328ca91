"""Trees and a smooth part added up as one Gaussian process: K = K_smooth + K_1 + ... + K_T.

Products and preconditioned solves, likelihood and gradient, training, and the sum conditioned on
data. The estimator is `triegp.TrieGPRegressor`.
"""

from triegp.additive.evidence import Evidence, forest_evidence
from triegp.additive.forest import (
    Forest,
    forest_level_products,
    forest_product,
)
from triegp.additive.gradient import Gradient, exact_gradient
from triegp.additive.model import ForestModel
from triegp.additive.neighbours import Neighbours, precondition_neighbours
from triegp.additive.preconditioner import Nystrom, Preconditioner, make_preconditioner
from triegp.additive.solve import NotConverged, Solution, solve_forest

__all__ = [
    "Evidence",
    "Forest",
    "ForestModel",
    "Gradient",
    "Neighbours",
    "NotConverged",
    "Nystrom",
    "Preconditioner",
    "Solution",
    "exact_gradient",
    "forest_evidence",
    "forest_level_products",
    "forest_product",
    "make_preconditioner",
    "precondition_neighbours",
    "solve_forest",
]
