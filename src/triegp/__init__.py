"""triegp: exact Gaussian-process regression with binary tree kernels, in linear time."""

from triegp.codes import Codes, pack_codes
from triegp.encoding import BitEncoder
from triegp.engines import CpuEngine
from triegp.forest_regressor import ForestGPRegressor
from triegp.joint import (
    Joint,
    covariance_operator,
    covariance_product,
    dense_covariance,
    draw_samples,
    joint_mean,
    joint_posterior,
    joint_prior,
)
from triegp.likelihood import Gradient, Likelihood, evaluate_orders, likelihood
from triegp.operators import (
    Factor,
    factorize,
    inverse_diagonal,
    inverse_operator,
    kernel_operator,
    level_products,
    product,
    solve,
    whiten,
)
from triegp.order import BitOrder, random_bits, uniform_weights
from triegp.persistence import load
from triegp.posterior import Posterior, Prediction, condition, insert, leave_one_out, predict
from triegp.regressor import BinaryTreeGPRegressor
from triegp.trie import Trie, build_trie, insert_rows, rebuild_trie, trie_keys

__version__ = "0.1.0.dev0"

__all__ = [
    "BinaryTreeGPRegressor",
    "BitEncoder",
    "BitOrder",
    "Codes",
    "CpuEngine",
    "Factor",
    "ForestGPRegressor",
    "Gradient",
    "Joint",
    "Likelihood",
    "Posterior",
    "Prediction",
    "Trie",
    "build_trie",
    "condition",
    "covariance_operator",
    "covariance_product",
    "dense_covariance",
    "draw_samples",
    "evaluate_orders",
    "factorize",
    "insert",
    "insert_rows",
    "inverse_diagonal",
    "inverse_operator",
    "joint_mean",
    "joint_posterior",
    "joint_prior",
    "kernel_operator",
    "leave_one_out",
    "level_products",
    "likelihood",
    "load",
    "pack_codes",
    "predict",
    "product",
    "random_bits",
    "rebuild_trie",
    "solve",
    "trie_keys",
    "uniform_weights",
    "whiten",
]
