"""What a type checker must know about an installed triegp: `make wheel-test` runs mypy on this."""

import triegp
from triegp import BinaryTreeGPRegressor, PredictiveDistribution, TrieGPRegressor

mixture: BinaryTreeGPRegressor = BinaryTreeGPRegressor(n_members=2)
forest: TrieGPRegressor = triegp.TrieGPRegressor(n_trees=4)
seconds: float = triegp.warm_up()


def median(distribution: PredictiveDistribution) -> float:
    """Median at the first row."""
    return float(distribution.quantile(0.5)[0])


BinaryTreeGPRegressor(n_membres=2)  # type: ignore[call-arg]
triegp.no_such_name  # type: ignore[attr-defined]  # noqa: B018
