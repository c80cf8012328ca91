"""Fitted models of all kinds, and what is written to and read from their files."""

import copy

import numpy as np
import pandas as pd
import pytest

import triegp
from triegp import BinaryTreeGPRegressor
from triegp.files.container import ModelFileError, write_file
from triegp.files.state import pack_model

rng = np.random.default_rng(0)
X = rng.random((200, 3))
X[:20] = X[20:40]  # twins
Y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
Y2 = np.stack([Y, Y**2 + 0.1 * rng.standard_normal(200)], axis=1)
NEW = 1.2 * rng.random((50, 3)) - 0.1  # some outside the box
MORE = X[:7] * 0.9 + 0.05
WEIGHT = rng.integers(0, 4, 200).astype(float)
KNOWN = rng.exponential(0.1, 200)


def small(**options):
    settings = {"n_members": 3, "n_candidates": 3, "max_iter": 5, "random_state": 0, "n_jobs": 1}
    return BinaryTreeGPRegressor(**(settings | options))


def fit_named():
    return small().fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)


def heteroscedastic(n=500):
    """Noise that depends on place, and enough rows for local noise."""
    draw = np.random.default_rng(3)
    features = draw.random((n, 3))
    noise = np.where(features[:, 1] < 0.5, 0.02, 1.0) * draw.standard_normal(n)
    return features, np.sin(5 * features[:, 0]) + noise


def fit_heteroscedastic():
    """A stage with local noise."""
    model = small().fit(*heteroscedastic())
    assert stage_of(model).local is not None
    return model


def fit_repeats():
    """The twins differ: repeated observations have a calibration of their own."""
    model = small().fit(X, Y)
    assert stage_of(model).repeats is not None
    assert model._stream.fitted[0].inputs is not None
    return model


def fit_line():
    """Few rows, for which a trend helps."""
    model = small().fit(X[20:80], X[20:80] @ [1.0, 2.0, 3.0] + 0.1 * Y[20:80])
    assert stage_of(model).trend is not None
    return model


def stage_of(model):
    """Calibration of the first target."""
    return model._stream.fitted[0].stages[0]


MODELS = {
    "plain": lambda: small().fit(X, Y),
    "weights": lambda: small().fit(X, Y, sample_weight=0.5 * WEIGHT),
    "known noise": lambda: small().fit(X, Y, known_noise=KNOWN),
    "both": lambda: small().fit(X, Y, sample_weight=WEIGHT, known_noise=KNOWN),
    "two targets": lambda: small().fit(X, Y2, known_noise=KNOWN),
    "shared targets": lambda: small(multi_target="shared").fit(X, Y2, sample_weight=WEIGHT),
    "one column": lambda: small().fit(X, Y[:, None]),
    "float32": lambda: small().fit(X.astype(np.float32), Y),
    "added to": lambda: small().fit(X, Y).partial_fit(MORE, Y[:7]),
    "added to, weighted": lambda: (
        small()
        .fit(X, Y)
        .partial_fit(MORE, Y[:7], sample_weight=np.arange(7.0), known_noise=np.arange(7.0))
    ),
    "unrelated outside": lambda: small(outside="unrelated").fit(X, Y),
    "bit nugget": lambda: small(nugget="bit", scaling="ecdf", mixture="stacking").fit(X, Y),
    "one grid": lambda: small(preset="paper-bte", n_candidates=6, max_iter=3).fit(X, Y),
    "many bits": lambda: small(precision=[31, 30, 29]).fit(X, Y),
    "one bit": lambda: small(shift=False, precision=1, scaling="minmax").fit(X[:, :1], Y),
    "local noise": fit_heteroscedastic,
    "repeats": fit_repeats,
    "trend": fit_line,
    "outside clipped": lambda: small(outside="clip").fit(X, Y),
    "precision": lambda: small(weights="precision").fit(X, Y, WEIGHT),
    "copies": lambda: small().fit(np.vstack([X[20:], X[40:80]]), np.append(Y[20:], Y[40:80])),
    "one row": lambda: small(n_members=2, refit=False).fit(X[:1], Y[:1]),
    "no rows kept": lambda: small(keep_rows=False).fit(X, Y),
}


def new_rows(model):
    return NEW[:, : model.n_features_in_]


def answers(model):
    """Everything that a model says, as arrays; no leave-one-out of rows that were set aside.

    Those are predicted by a model that has its rows, and not by one from a file without rows.
    """
    new = new_rows(model)
    used = ~np.isnan(model.loo_targets())
    left_out = [*model.loo_predict(), model.loo_log_density()]
    return [
        *model.predict(new, return_std=True),
        *model.predict(new, return_std=True, latent=True),
        model.predict_quantiles(new, (1e-3, 0.5, 0.9)),
        used,
        *(values[used.reshape(values.shape)] for values in left_out),
        model.sample_y(new, 3, random_state=1),
        model.feature_importances_,
        np.array(model.log_marginal_likelihood_),
        np.array(model.loo_score_),
        np.array(model.n_evaluations_),
    ]


def assert_same(a, b):
    for one, two in zip(answers(a), answers(b), strict=True):
        np.testing.assert_array_equal(one, two, strict=True)


def through_file(model, path, **options):
    model.save(path, **options)
    return triegp.load(path)


def refused(path, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        triegp.load(path)
    assert str(path) in str(caught.value)


def parts_of(model, training_data=False):
    """Header and arrays of a file of the model, to be edited."""
    named = {"estimator": type(model).__name__, "parameters": model.get_params()}
    facts, arrays = pack_model(model._state(), training_data)
    return named | {"model": facts}, arrays


def places_in(facts, path=""):
    """Places of all facts of a model, such as `fitted.0.apart`, and the facts."""
    items = facts.items() if isinstance(facts, dict) else enumerate(facts)
    for key, fact in items:
        place = f"{path}.{key}" if path else str(key)
        yield place, fact
        if isinstance(fact, (dict, list)):
            yield from places_in(fact, place)


def array_at(parts, place):
    """The array of a place, or None if its fact is not one of an array."""
    fact = dict(places_in(parts[0]["model"]))[place]
    name = place if fact is True else fact
    return parts[1].get(name) if isinstance(name, str) else None


def edited(parts, place, change):
    """Header and arrays with another fact or array at a place; a callable makes it of the old."""
    header, arrays = copy.deepcopy(parts[0]), dict(parts[1])
    *path, last = place.split(".")
    holder = header["model"]
    for key in path:
        holder = holder[int(key) if isinstance(holder, list) else key]
    last = int(last) if isinstance(holder, list) else last
    array = array_at(parts, place)
    value = change
    if callable(change):
        value = change(holder[last] if array is None else array.copy())
    if isinstance(value, np.ndarray):
        arrays[place], value = value, True
    holder[last] = value
    return header, arrays


def at(place, value):
    """An edit of some entries of an array."""

    def edit(array):
        array[place] = value
        return array

    return edit


def swap(i, j):
    """An edit that swaps two entries of an array."""
    return lambda array: at([i, j], array[[j, i]])(array)


def write_parts(path, header, arrays):
    """A file with a fitting digest, whatever it says."""
    write_file(path, header, arrays)
    return path
