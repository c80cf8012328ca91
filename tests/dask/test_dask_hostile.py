"""Arrays of the corpus as Dask arrays: the same answer as in memory, and no model."""

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from hostile_tables import CORPUS, X, Y
from triegp.dask import DaskBinaryTreeGPRegressor


def is_numeric(values):
    return type(values) is np.ndarray and values.dtype.kind in "fiub" and values.ndim > 0


NUMERIC = {
    name: bad
    for name, bad in CORPUS.items()
    if all(is_numeric(values) for values in bad.given.values())
}


@pytest.fixture(scope="module")
def client():
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as made:
        yield made


def lazily(values):
    """The values as a Dask array of chunks of ten rows, if they have rows."""
    return da.from_array(values, chunks=(10, *values.shape[1:])) if values.size else values


@pytest.mark.parametrize("name", NUMERIC)
def test_fit_says_what_is_wrong(client, name):
    bad = NUMERIC[name]
    given = {"X": X, "y": Y} | bad.given
    model = DaskBinaryTreeGPRegressor(client=client, n_members=2, n_candidates=2, max_iter=2)
    with pytest.raises((ValueError, TypeError)) as caught:
        model.fit(**{argument: lazily(values) for argument, values in given.items()})
    assert len(str(caught.value)) > 10
    assert not hasattr(model, "_stream")
    argument = next(iter(bad.given))
    assert any(word in str(caught.value) for word in (argument, "array", "rows"))
