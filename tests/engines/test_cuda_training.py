"""Training on the CUDA engine: the same orders, the same fits to rounding as on the CPU.

In numba's simulator, on few rows, or on a card (TRIEGP_TEST_CARD=1), where arrays are CuPy's and
must not be mixed with numpy's.
"""

import numpy as np
import pytest

from on_card import ON_CARD
from problems import make_problem
from tolerances import FITS, GRADIENT, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.engines import CpuEngine
from triegp.engines.choice import choose
from triegp.tree import BitOrder, evaluate_orders

N_ROWS = 2_000 if ON_CARD else 12
FEW_ROWS = 50 if ON_CARD else 12  # all are neighbours: the CPU's smooth part is exact, too
MODELS = {
    "ensemble": BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=1, precision=2),
    "paper": BinaryTreeGPRegressor(preset="paper-bt", n_members=2, n_candidates=3, max_iter=1),
    "trees": TrieGPRegressor(n_trees=2, max_iter=1, precision=2, smooth=False),
    "trees and smooth part": TrieGPRegressor(n_trees=2, max_iter=1, precision=2, smooth=True),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_orders_over_weighted_and_noisy_rows(known, weighted):
    problem = make_problem(0, n=N_ROWS, precision=(3, 3), shape="twins")
    orders = [BitOrder.from_phi(problem.rng.standard_normal(6)) for _ in range(2)]
    options = {"gradient": True}
    if known:
        options["known_noise"] = problem.known
    if weighted:
        options["sample_weight"] = problem.weight
    cpu, cuda = (
        evaluate_orders(problem.codes, orders, problem.y, 0.05, engine=engine, **options)
        for engine in (CpuEngine(), choose("cuda", 0))
    )
    for one, two in zip(cpu, cuda, strict=True):
        np.testing.assert_allclose(two.nll, one.nll, **VALUE)
        np.testing.assert_allclose(two.gradient.by_noise, one.gradient.by_noise, **GRADIENT)
        np.testing.assert_allclose(two.gradient.by_level, one.gradient.by_level, **GRADIENT)


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_estimators(name):
    rng, n = np.random.default_rng(1), FEW_ROWS if "smooth" in name else N_ROWS
    X = rng.random((n, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    weight = rng.integers(1, 3, n).astype(float)
    model = MODELS[name].set_params(random_state=0)
    cpu, cuda = (
        model.set_params(engine=engine).fit(X, y, weight).predict(X, return_std=True)
        for engine in ("cpu", "cuda")
    )
    for one, two in zip(cpu, cuda, strict=True):
        assert type(two) is np.ndarray
        np.testing.assert_allclose(two, one, **FITS)
