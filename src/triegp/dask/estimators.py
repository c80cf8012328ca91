"""The estimators on Dask collections: fitted by a cluster, with lazy predictions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from distributed import Client, Future
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from triegp.dask.cluster import ClusterPool, find_client, wait_for_workers
from triegp.dask.partitions import (
    DaskPieces,
    Partition,
    align,
    delay,
    gather_rows,
    is_collection,
)
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.mixture_regressor import BinaryTreeGPRegressor
from triegp.estimators.pieces import PiecesRegressor
from triegp.estimators.trie_regressor import TrieGPRegressor
from triegp.models.distribution import check_quantiles, interval_quantiles
from triegp.models.jobs import Pool

GRAPH_ROWS = 1_000_000  # models of more rows are not part of the graphs of predictions


class DaskRegressor(PiecesRegressor):
    """What both estimators share: collections in, lazy predictions out.

    Attributes
    ----------
    client : distributed.Client or None
        The client; None for the current one. It is not copied, pickled or saved.
    """

    client: Client | None
    _local: ClassVar[type[PiecesRegressor]]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None) -> Self:
        """Train on rows of Dask collections; with other arrays as the local estimator.

        Parameters
        ----------
        X : Dask array (n_rows, n_features) or data frame
            Any chunks, also of unknown size; empty partitions are skipped.
        y : Dask array or series (n_rows,) or (n_rows, n_targets), or an array
            Targets. Series must be divided as X is; arrays are cut where X is.
        sample_weight, known_noise : Dask array or series (n_rows,), or an array, optional
            As in the local estimator.

        Returns
        -------
        self
            The same model as the local estimator's, to the last bit, for any number of workers.
        """
        if not is_collection(X):
            return super().fit(X, y, sample_weight, known_noise)
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} requires y to be passed, but the target y is None")
        client = find_client(self.client)
        return self._fit_partitions(client, _aligned(client, X, y, sample_weight, known_noise))

    def _pool(self) -> Pool | None:
        return self.__dict__.get("_cluster")

    def _unfitted(self) -> Any:
        parameters = self.get_params(deep=False)
        parameters.pop("client")
        return clone(self._local(**parameters))

    def _fit_partitions(self, client: Client, parts: list[Partition]) -> Self:
        """Fit to the rows of all partitions, of which there is at least one."""
        self._cluster = ClusterPool(client)  # while this lasts, workers learn the orders
        try:
            if parts[0].known_noise is None and self._by_cells(sum(p.n_rows for p in parts)):
                return self.fit_pieces(DaskPieces(client, parts))
            return super().fit(*gather_rows(client, parts))
        finally:
            del self._cluster

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, known_noise: Any = None
    ) -> Self:
        """Add training rows; those of Dask collections are gathered in this process."""
        if not is_collection(X):
            return super().partial_fit(X, y, sample_weight, known_noise)
        client = find_client(self.client)
        parts = _aligned(client, X, y, sample_weight, known_noise)
        if not hasattr(self, "_stream"):
            return self._fit_partitions(client, parts)
        return super().partial_fit(*gather_rows(client, parts))

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, latent: bool = False
    ) -> Any:
        """Mean of new observations, and their standard deviation.

        For a Dask collection X the results are Dask arrays, (m,) or (m, n_targets), computed when
        they are asked for. Covariances are those of the local estimator: `to_local().predict`.
        """
        if not is_collection(X):
            return super().predict(X, return_std, return_cov, latent=latent)
        if return_cov:
            raise ValueError("return_cov=True requires X in memory, got a Dask collection")
        if not return_std:
            return self._each(X, _predict, {"latent": latent}, ())[0]
        return tuple(self._each(X, _predict, {"latent": latent, "return_std": True}, (), 2))

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), *, latent: bool = False
    ) -> Any:
        """Quantiles of new observations, (m, k) or (m, k, n_targets); lazy for a collection X."""
        if not is_collection(X):
            return super().predict_quantiles(X, quantiles, latent=latent)
        q = check_quantiles(quantiles)
        asked = {"quantiles": q, "latent": latent}
        return self._each(X, _predict_quantiles, asked, (q.size,))[0]

    def predict_interval(self, X: Any, coverage: float = 0.9, *, latent: bool = False) -> Any:
        """Central interval of new observations, (m, 2) or (m, 2, n_targets); as quantiles."""
        return self.predict_quantiles(X, interval_quantiles(coverage), latent=latent)

    def predict_distribution(self, X: Any, *, latent: bool = False) -> Any:
        """Predictive distribution at rows in memory; raises TypeError for a Dask collection."""
        if is_collection(X):
            raise TypeError(
                "predict_distribution takes rows in memory, got a Dask collection: use predict, "
                "predict_quantiles or predict_interval, or X.map_partitions with to_local()"
            )
        return super().predict_distribution(X, latent=latent)

    def to_local(self) -> TreeGPRegressor:
        """The fitted model as the local estimator, which does not know Dask. Nothing is copied."""
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        parameters.pop("client")
        local = self._local(**parameters)
        local._restore(self._state())
        return local

    def save(self, path: str | Path, *, training_data: bool = False) -> None:
        """Write the fitted model to a file; `triegp.load` returns the local estimator."""
        self.to_local().save(path, training_data=training_data)

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy with the same client."""
        parameters = self.get_params(deep=False)
        client = parameters.pop("client")
        return type(self)(client=client, **{k: clone(v, safe=False) for k, v in parameters.items()})

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without the client."""
        state = super().__getstate__()
        state.pop("_sent", None)
        return state | {"client": None}

    def _each(
        self,
        X: Any,
        work: Callable[..., Any],
        asked: dict[str, Any],
        shape: tuple[int, ...],
        n_results: int = 1,
    ) -> list[da.Array]:
        """The n_results of work(model, partition) as Dask arrays (m, *shape, ...), lazily."""
        check_is_fitted(self)
        model, parts = self._send(), delay(X)
        last = shape if self.one_dimensional_ else (*shape, self._stream.mean.size)
        lengths = X.chunks[0] if isinstance(X, da.Array) else [np.nan] * len(parts)
        call = delayed(work, pure=True, nout=n_results)
        found = [call(model, part, last, n_results, **asked) for part in parts]
        return [
            da.concatenate(
                [
                    da.from_delayed(one[which], (n, *last), dtype=np.float64)
                    for one, n in zip(found, lengths, strict=True)
                ],
                allow_unknown_chunksizes=True,
            )
            for which in range(n_results)
        ]

    def _send(self) -> Delayed:
        """The model for the tasks of predictions.

        It is part of their graph, so that lost tasks find it again. Of many rows it is too large
        for that: it lies on one worker, and is sent again if that worker is lost.
        """
        stream = self._inserted()
        try:
            client = find_client(self.client)
        except RuntimeError:
            client = None  # the schedulers of one machine need no cluster
        there = client if client is not None and client.status == "running" else None
        if stream.n_rows <= GRAPH_ROWS or there is None:
            return delayed(self.to_local(), traverse=False)
        sent = getattr(self, "_sent", None)
        if sent is None or sent[:2] != (stream, there) or not _is_held(there, sent[2]):
            wait_for_workers(there)
            self._sent = sent = (stream, there, there.scatter(self.to_local(), hash=False))
        return delayed(sent[2])


def _is_held(client: Client, future: Future) -> bool:
    """Whether a worker has what was scattered; the scheduler knows before the future does."""
    return not future.cancelled() and any(client.who_has([future]).values())


def _aligned(client: Client, X: Any, y: Any, weight: Any, known_noise: Any) -> list[Partition]:
    """Partitions that have rows; raises ValueError if there are none."""
    parts = align(client, X, y=y, weight=weight, known_noise=known_noise)
    if not parts:
        raise ValueError("X must have at least one row and one column, got no rows")
    return parts


def _with_client(local: type[TreeGPRegressor]) -> Callable[..., None]:
    """The constructor of an estimator, with the parameter `client` in front."""
    names = inspect.signature(local.__init__)

    def __init__(self: Any, *, client: Client | None = None, **parameters: Any) -> None:  # noqa: N807
        local.__init__(self, **parameters)
        self.client = client

    own = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    first, *rest = names.parameters.values()
    __init__.__signature__ = names.replace(parameters=[first, own, *rest])  # type: ignore[attr-defined]
    return __init__


class DaskBinaryTreeGPRegressor(DaskRegressor, BinaryTreeGPRegressor):
    """`BinaryTreeGPRegressor` on Dask arrays and data frames.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster; by default the current client.
    **parameters
        Those of `BinaryTreeGPRegressor`.

    Notes
    -----
    Up to `max_cells` rows are gathered in this process, and those that orders are learned from are
    sent to every worker. Each tree is learned by a task, on one thread. This process conditions
    and calibrates. With more rows, no process holds all of them: partitions are summed up by cell
    where they lie (`docs/large.md`), in three passes. With a time budget, orders are learned in
    this process. The model is in this process in the end; predictions are sent to the workers with
    it. While workers learn or sum up rows, `on_interrupt="keep"` does not notice Ctrl-C.
    """

    _local = BinaryTreeGPRegressor
    __init__ = _with_client(BinaryTreeGPRegressor)


class DaskTrieGPRegressor(DaskRegressor, TrieGPRegressor):
    """`TrieGPRegressor` on Dask arrays and data frames.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster; by default the current client.
    **parameters
        Those of `TrieGPRegressor`.

    Notes
    -----
    As `DaskBinaryTreeGPRegressor`. Up to 196,608 rows, and the base of a model of more rows, are
    learned in this process; the base is sent to every worker that sums up rows.
    """

    _local = TrieGPRegressor
    __init__ = _with_client(TrieGPRegressor)


def _predict(model: Any, X: Any, last: tuple[int, ...], n_results: int, **asked: Any) -> Any:
    """Mean of a partition's rows, and their deviation if it is asked for, as a tuple."""
    if not len(X):
        return (np.empty((0, *last)),) * n_results
    found = model.predict(X, **asked)
    return found if n_results > 1 else (found,)


def _predict_quantiles(
    model: Any, X: Any, last: tuple[int, ...], n_results: int, **asked: Any
) -> Any:
    """Quantiles of a partition's rows, as a tuple of one array."""
    return (model.predict_quantiles(X, **asked) if len(X) else np.empty((0, *last)),)
