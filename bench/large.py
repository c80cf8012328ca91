"""More rows than fit in memory, by Dask: `python -m bench.large ROWS [FOLDER]`.

Writes synthetic rows of 8 features to Parquet files, one per million rows, and fits them through a
LocalCluster of two workers. `python -m bench.large overhead ROWS` fits rows in memory with and
without Dask, by turns. Prints a line of JSON for every measurement as it comes.
"""

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import root_mean_squared_error

from bench.measure import peak_bytes, resident_bytes
from bench.scaling import N_FEATURES, synthetic
from triegp.metrics import coverage, nll

FILE_ROWS = 1_000_000
NAMES = [f"x{j}" for j in range(N_FEATURES)]


def tell(**facts):
    print(json.dumps(facts), flush=True)


def write_files(n_rows, folder):
    """Parquet files of float32, one per million rows; those that are there stay."""
    import pandas as pd

    for k in range(-(-n_rows // FILE_ROWS)):
        path = folder / f"{k:05d}.parquet"
        if not path.exists():
            X, y = synthetic(min(FILE_ROWS, n_rows - k * FILE_ROWS), seed=100 + k)
            pd.DataFrame(X, columns=NAMES).assign(y=y).astype(np.float32).to_parquet(path)


def quality(model):
    """RMSE and nll at new rows, and coverage of 90 % intervals."""
    X, y = synthetic(100_000, seed=1)
    found = model.predict_distribution(X)
    return {
        "rmse": root_mean_squared_error(y, found.mean()),
        "nll": nll(y, found),
        "coverage_90": coverage(y, found.interval(0.9)),
    }


def out_of_core(n_rows, folder):
    """Fit files through a cluster: time, memory of every process, size of the model."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from triegp.dask import DaskBinaryTreeGPRegressor

    write_files(n_rows, folder)
    tell(n=n_rows, gigabytes_on_disk=sum(p.stat().st_size for p in folder.glob("*.parquet")) / 1e9)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="7GB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        table = dd.read_parquet(folder)
        before = resident_bytes()
        start = time.perf_counter()
        model = DaskBinaryTreeGPRegressor(random_state=0, client=client)
        model.fit(table[NAMES], table["y"])
        tell(
            fit_seconds=time.perf_counter() - start,
            client_peak_gb=peak_bytes() / 1e9,
            client_after_gb=resident_bytes() / 1e9,
            client_before_gb=before / 1e9,
            worker_peak_gb=[bytes_ / 1e9 for bytes_ in client.run(peak_bytes).values()],
            cells=[one.posteriors[0].n_rows for one in model.ensembles_[0].members],
            model=repr(model)[-120:],
        )
        tell(**quality(model.to_local()))
        local = model.to_local()
        model_file = folder / "model.tgp"
        local.save(model_file)
        tell(file_gb=model_file.stat().st_size / 1e9)
        some = table[NAMES].partitions[:2]
        start = time.perf_counter()
        n_predicted = model.predict(some, return_std=True)[1].compute().size
        tell(predicted=n_predicted, predict_seconds=time.perf_counter() - start)


def overhead(n_rows):
    """The same rows with and without Dask, by turns, on two workers of one thread each."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from triegp import BinaryTreeGPRegressor
    from triegp.dask import DaskBinaryTreeGPRegressor

    X, y = synthetic(n_rows)
    chunks = max(n_rows // 8, 1)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        with warnings.catch_warnings(action="ignore"):  # a large graph
            lazy = client.persist([da.from_array(X, (chunks, -1)), da.from_array(y, chunks)])
        for turn in range(3):  # the first has nothing compiled
            start = time.perf_counter()
            DaskBinaryTreeGPRegressor(random_state=0, client=client).fit(*lazy)
            with_dask = time.perf_counter() - start
            start = time.perf_counter()
            BinaryTreeGPRegressor(random_state=0).fit(X, y)
            alone = time.perf_counter() - start
            tell(turn=turn, n=n_rows, dask_seconds=with_dask, local_seconds=alone)


def main(arguments):
    if arguments[0] == "overhead":
        return overhead(int(arguments[1]))
    n_rows = int(float(arguments[0]))
    if len(arguments) > 1:
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        return out_of_core(n_rows, folder)
    with tempfile.TemporaryDirectory() as folder:
        return out_of_core(n_rows, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
