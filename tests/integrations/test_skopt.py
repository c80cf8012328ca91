"""scikit-optimize: our regressors as the model of its optimisers."""

import numpy as np
import pytest

pytest.importorskip("skopt", reason="needs scikit-optimize: make integrations-test")

from skopt import Optimizer, Space
from skopt.optimizer import base_minimize

from triegp import BinaryTreeGPRegressor, TrieGPRegressor

SPACE = [(1e-4, 1.0, "log-uniform"), (1, 12), ["a", "b"]]
MODELS = {
    "trees and a smooth part": TrieGPRegressor(n_trees=4, outside="clip", random_state=0),
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=4, outside="clip", random_state=0),
}


def objective(point):
    rate, depth, kind = point
    return (np.log10(rate) + 2) ** 2 + 0.05 * (depth - 7) ** 2 + (kind == "a")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("acquisition", ["EI", "LCB"])
@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_ask_and_tell(name, acquisition):
    optimizer = Optimizer(
        SPACE,
        base_estimator=MODELS[name],
        n_initial_points=8,
        acq_func=acquisition,
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"n_points": 500},
        random_state=0,
    )
    for _ in range(20):
        point = optimizer.ask()
        result = optimizer.tell(point, objective(point))
    assert type(optimizer.models[-1]) is type(MODELS[name])
    assert len(optimizer.ask(n_points=3)) == 3
    chosen, random = result.func_vals[8:], result.func_vals[:8]
    assert np.median(chosen) < np.median(random)
    assert result.x[2] == "b"


def test_the_model_is_asked_for_means_and_deviations():
    """The next point has the largest expected improvement of those that were drawn."""
    from skopt.acquisition import gaussian_ei

    model = MODELS["trees and a smooth part"]
    optimizer = Optimizer(
        [(0.0, 1.0)],
        base_estimator=model,
        n_initial_points=6,
        acq_func="EI",
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"n_points": 200},
        random_state=0,
    )
    points = np.linspace(0, 1, 10)
    optimizer.tell([[x] for x in points], np.square(points - 0.33).tolist())
    [next_point] = optimizer.ask()
    grid = np.linspace(0, 1, 300)[:, None]
    fitted = optimizer.models[-1]
    best = np.square(points - 0.33).min()
    ours = gaussian_ei(np.array([[next_point]]), fitted, y_opt=best, xi=0.01)
    assert ours[0] > np.quantile(gaussian_ei(grid, fitted, y_opt=best, xi=0.01), 0.9)


def test_minimize():
    """Beside random search with as many calls."""
    found = base_minimize(
        objective,
        SPACE,
        MODELS["trees and a smooth part"],
        n_calls=25,
        n_initial_points=10,
        acq_func="EI",
        acq_optimizer="sampling",
        random_state=0,
    )
    random = Space(SPACE).rvs(25, random_state=0)
    assert found.fun < min(map(objective, random))
