"""One tree: bit order, trie, likelihood with gradient, posterior, joint distribution, operators."""

from triegp.tree.joint import (
    Joint,
    covariance_operator,
    covariance_product,
    dense_covariance,
    draw_samples,
    joint_mean,
    joint_posterior,
    joint_prior,
)
from triegp.tree.likelihood import Gradient, Likelihood, evaluate_orders, likelihood
from triegp.tree.operators import (
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
from triegp.tree.order import BitOrder, random_bits, uniform_weights
from triegp.tree.posterior import Posterior, Prediction, condition, insert, leave_one_out, predict
from triegp.tree.trie import Trie, build_trie, insert_rows, rebuild_trie, trie_keys

__all__ = [
    "BitOrder",
    "Factor",
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
    "predict",
    "product",
    "random_bits",
    "rebuild_trie",
    "solve",
    "trie_keys",
    "uniform_weights",
    "whiten",
]
