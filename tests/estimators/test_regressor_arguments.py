"""Rows of all kinds, and arguments that are refused by name."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from regressor_problems import QUICK, make_data
from tolerances import HANDFUL, VALUE
from triegp import BinaryTreeGPRegressor

# Rows of all kinds.


def test_rows_outside_the_box(recwarn):
    X, y = make_data()
    inside = X[:2]
    beyond = np.array([[-1.0, 0.5], [0.5, 7.0]])
    clip, unrelated, error = (
        BinaryTreeGPRegressor(**QUICK, outside=outside).fit(X, y)
        for outside in ("clip", "unrelated", "error")
    )
    border = np.clip(beyond, X.min(axis=0), X.max(axis=0))
    np.testing.assert_array_equal(clip.predict(beyond), clip.predict(border))
    np.testing.assert_array_equal(unrelated.predict(inside), clip.predict(inside))
    np.testing.assert_allclose(unrelated.predict(beyond), unrelated.target_mean_[0], rtol=HANDFUL)
    assert unrelated._stream.fitted[0].stages[0].trend is not None  # which ends at the box
    mean, std = unrelated.predict(beyond, return_std=True)
    np.testing.assert_array_equal(mean, unrelated.predict(beyond))
    np.testing.assert_allclose(std, y.std(ddof=1), **VALUE)
    both, cov = unrelated.predict(np.concatenate([beyond, inside]), return_cov=True)
    np.testing.assert_array_equal(both[:2], mean)
    np.testing.assert_allclose(np.diag(cov)[:2], y.var(ddof=1), **VALUE)
    assert not cov[:2, 2:].any()
    draws = unrelated.sample_y(beyond, 4000, random_state=0)
    assert (np.abs(draws.mean(axis=1) - y.mean()) < 5 * std / np.sqrt(4000)).all()
    np.testing.assert_array_equal(error.predict(inside), clip.predict(inside))
    for call in (error.predict, error.sample_y, error.predict_interval):
        with pytest.raises(ValueError, match="training box"):
            call(beyond)
    for model in (unrelated, error):
        with pytest.raises(ValueError, match="box"):
            model.partial_fit(beyond, y[:2])
    clip.partial_fit(beyond, y[:2])
    assert clip.loo_predict()[0].shape == (42,)


def kinds_of_arrays(X, path):
    locked = X.copy()
    locked.flags.writeable = False
    mapped = np.memmap(path / "X.bin", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    return {
        "read-only": locked,
        "memory-mapped": np.memmap(path / "X.bin", dtype=X.dtype, mode="r", shape=X.shape),
        "Fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "list": X.tolist(),
        "object": X.astype(object),
        "big-endian": X.astype(X.dtype.newbyteorder(">")),
    }


def test_any_array_of_the_same_numbers_gives_the_same_model(tmp_path):
    X, y = make_data()
    X = X.astype(np.float32)  # the same numbers in float32 and in float64
    plain = BinaryTreeGPRegressor(**QUICK).fit(X.astype(float), y)
    expected = plain.predict(X.astype(float), return_std=True)
    kinds = kinds_of_arrays(X.astype(float), tmp_path) | {"float32": X}
    for name, rows in kinds.items():
        model = BinaryTreeGPRegressor(**QUICK).fit(rows, y)
        np.testing.assert_array_equal(model.predict(rows, return_std=True), expected, name)
        model.partial_fit(rows[:5], y[:5])
    locked = y.copy()
    locked.flags.writeable = False
    for target in (locked, y.tolist(), y.astype(object), np.repeat(y, 2)[::2]):
        model = BinaryTreeGPRegressor(**QUICK).fit(X, target)
        np.testing.assert_array_equal(model.predict(X, return_std=True), expected)


def test_sparse_rows_are_refused():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.fit(csr_array(X), y)
    model.fit(X, y)
    for call in (model.predict, model.sample_y):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            call(csr_array(X))


def test_nothing_is_predicted_before_a_fit():
    X, y = make_data()
    model = BinaryTreeGPRegressor()
    for call in (
        lambda: model.predict(X),
        lambda: model.predict_quantiles(X),
        lambda: model.log_density(X, y),
        lambda: model.sample_y(X),
        model.loo_predict,
        model.loo_log_density,
        model.refresh,
        lambda: model.importances_,
        lambda: model.save("nowhere"),
    ):
        with pytest.raises(NotFittedError, match="not fitted"):
            call()


BAD_PARAMETERS = [
    ("preset", "best"),
    ("categorical_features", "all"),
    ("n_members", 0),
    ("n_members", 2.5),
    ("n_members", True),
    ("n_candidates", -1),
    ("scaling", "log"),
    ("precision", 0),
    ("precision", "many"),
    ("precision", [3, 3, 3]),
    ("precision", 32),
    ("shift", "yes"),
    ("outside", "ignore"),
    ("nugget", "leaf"),
    ("noise", 0.0),
    ("noise", "little"),
    ("noise", np.nan),
    ("learn_scale", 1),
    ("optimizer", "adam"),
    ("max_iter", 0),
    ("tol", -1e-3),
    ("mixture", "mean"),
    ("temperature", 0.0),
    ("multi_target", "each"),
    ("weights", "many"),
    ("target_transform", "sqrt"),
    ("max_cells", 1),
    ("max_cells", 2.5),
    ("time_budget", 0),
    ("time_budget", -1.0),
    ("on_interrupt", "ignore"),
    ("keep_rows", "yes"),
    ("refit", True),
    ("refit", "never"),
    ("window", 0),
    ("window", 10.0),
    ("half_life", 0),
    ("half_life", "long"),
    ("engine", "gpu"),
    ("engine", None),
    ("n_jobs", 0),
    ("n_jobs", 1.5),
    ("verbose", -1),
    ("verbose", "loud"),
    ("random_state", "dice"),
    ("random_state", -1),
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
def test_a_bad_parameter_is_named(name, value):
    X, y = make_data()
    with pytest.raises(ValueError, match=name):
        BinaryTreeGPRegressor(**(QUICK | {name: value})).fit(X, y)


def test_all_parameters_are_checked():
    assert {name for name, _ in BAD_PARAMETERS} == set(BinaryTreeGPRegressor().get_params())


def test_bad_arguments_are_named():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    for name, call in (
        ("return_std and return_cov", lambda: model.predict(X, True, True)),
        ("quantiles", lambda: model.predict_quantiles(X, (0.0, 0.5))),
        ("quantiles", lambda: model.predict_quantiles(X, ())),
        ("quantiles", lambda: model.predict_quantiles(X, "all")),
        ("coverage", lambda: model.predict_interval(X, 1.0)),
        ("coverage", lambda: model.predict_interval(X, "most")),
        ("n_samples", lambda: model.sample_y(X, 0)),
        ("n_samples", lambda: model.sample_y(X, 1.5)),
        ("random_state", lambda: model.sample_y(X, 1, random_state="dice")),
        ("y must have 40 rows", lambda: model.log_density(X, y[:3])),
        ("y must have 40 rows and 1 targets", lambda: model.log_density(X, np.ones((40, 2)))),
        ("sample_weight", lambda: model.fit(X, y, np.ones(3))),
        ("sample_weight", lambda: model.fit(X, y, -np.ones(40))),
        ("sample_weight", lambda: model.fit(X, y, np.zeros(40))),
        ("sample_weight", lambda: model.partial_fit(X, y, np.ones(3))),
        ("known_noise", lambda: model.fit(X, y, known_noise=np.ones(3))),
        ("known_noise", lambda: model.partial_fit(X, y, known_noise=-np.ones(40))),
    ):
        with pytest.raises(ValueError, match=name):
            call()
