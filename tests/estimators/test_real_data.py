"""Real tables, read from a folder beside the repository (or $TRIEGP_DATA); skipped without it."""

import os
from pathlib import Path

import numpy as np
import pytest

from problems import take
from tolerances import GRADIENT, VALUE
from triegp import BitEncoder, sros
from triegp.tree import (
    BitOrder,
    build_trie,
    condition,
    evaluate_orders,
    insert,
    leave_one_out,
    likelihood,
    predict,
    random_bits,
    uniform_weights,
)

DATA = Path(os.environ.get("TRIEGP_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(params=["protein", "keggdirected", "pol", "concrete"])
def table(request):
    path = DATA / request.param / "data.npz"
    if not path.exists():
        pytest.skip(f"{request.param} is not in the data folder; set TRIEGP_DATA")
    with np.load(path) as data:
        X, y = data["X"][:4_000], data["y"][:4_000].astype(float).ravel()
    return X, (y - y.mean()) / y.std()


def test_trie_and_sros_agree(table):
    X, y = table
    rng = np.random.default_rng(0)
    encoder = BitEncoder(scaling="ecdf", shift="random", random_state=0).fit(X)
    codes = encoder.encode(X)
    order = BitOrder.from_weights(
        random_bits(codes.precision, rng), uniform_weights(codes.n_bits, last=0.5)
    )
    value = likelihood(build_trie(codes, order), order, y, 0.01, gradient=True)
    bits = np.unpackbits(codes.packed, axis=1)[:, order.key_bits]
    noise = 0.01 + order.nugget_variance
    other = sros.gp_likelihood(bits, y, order.weights[: order.n_levels], noise)
    np.testing.assert_allclose(value.nll, other.nll, **VALUE)
    by_weight = np.cumsum(value.gradient.by_level[::-1])[::-1][1:]
    scale = np.abs(other.weights_gradient).max()
    np.testing.assert_allclose(by_weight / scale, other.weights_gradient / scale, **GRADIENT)


def test_automatic_precision_keeps_rows_apart(table):
    X, _ = table
    codes = BitEncoder().fit(X).encode(X)
    assert len(np.unique(codes.packed, axis=0)) == len(np.unique(X, axis=0))


def test_best_of_a_few_random_orders_beats_a_constant_out_of_sample(table):
    X, y = table
    rng = np.random.default_rng(0)
    encoder = BitEncoder().fit(X)
    codes = encoder.encode(X)
    train, test = take(codes, slice(0, 3_000)), take(codes, slice(3_000, None))
    n_train = train.n_rows
    weights = uniform_weights(codes.n_bits, last=0.5)
    orders = [BitOrder.from_weights(random_bits(codes.precision, rng), weights) for _ in range(40)]
    values = evaluate_orders(train, orders, y[:n_train], 1e-3)
    order = orders[int(np.argmin([value.nll for value in values]))]
    posterior = condition(build_trie(train, order), train, order, y[:n_train], 1e-3)
    if test.n_rows:
        error = y[n_train:] - predict(posterior, test, var=False).mean
        assert np.mean(error**2) < np.mean(y[n_train:] ** 2)
    grown = insert(posterior, test, y[n_train:]) if test.n_rows else posterior
    whole = condition(build_trie(codes, order), codes, order, y, 1e-3)
    np.testing.assert_array_equal(leave_one_out(grown).mean, leave_one_out(whole).mean)
