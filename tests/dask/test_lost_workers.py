"""Clusters whose workers die, restart, are slow or go away: a fit goes on or ends, in time."""

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress

import dask
import dask.array as da
import pytest
from distributed import Client, LocalCluster

import triegp.estimators.pieces as pieces_module
from dask_problems import QUICK, assert_same, problem
from triegp import BinaryTreeGPRegressor
from triegp.dask import DaskBinaryTreeGPRegressor, cluster
from triegp.dask.cluster import ClusterPool, find_client
from triegp.mixture import train

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:Port .* is already in use:UserWarning"
)


@pytest.fixture
def processes():
    """Three workers that are processes, without a nanny's memory limits."""
    workers = LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=None, memory_limit=None
    )
    yield workers
    with suppress(Exception):  # Dask may stumble over workers that were killed
        workers.close()


@pytest.fixture
def client(processes):
    client = Client(processes)
    yield client
    with suppress(Exception):
        client.close()


def wait_and_square(shared, item):
    seconds, slow = shared
    time.sleep(seconds * (10 if item == slow else 1))
    return item * item


def die(shared, item):
    if item == shared:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def pid_of_first_worker(client):
    return sorted(client.run(os.getpid).items())[0][1]


def later(seconds, work):
    def quietly():
        with suppress(Exception):  # what was closed in the meantime
            work()

    timer = threading.Timer(seconds, quietly)
    timer.start()
    return timer


@pytest.mark.cluster
def test_a_job_whose_worker_is_killed_runs_again(client):
    pid = pid_of_first_worker(client)
    timer = later(0.3, lambda: os.kill(pid, signal.SIGKILL))
    found = ClusterPool(client).run(wait_and_square, (0.2, None), range(12))
    timer.join()
    assert found == [k * k for k in range(12)]


@pytest.mark.cluster
def test_a_job_that_kills_every_worker_ends_with_a_name(client):
    with pytest.raises(RuntimeError, match=r"worker 0, 1, 2|worker \S+ was lost"):
        ClusterPool(client).run(die, 1, range(3))


@pytest.mark.cluster
def test_restarted_workers_get_what_they_share_again(client):
    timer = later(0.5, client.restart)
    found = ClusterPool(client).run(wait_and_square, (0.4, None), range(9))
    timer.join()
    assert found == [k * k for k in range(9)]


@pytest.mark.cluster
def test_slow_workers_are_waited_for(client):
    assert ClusterPool(client).run(wait_and_square, (0.05, 2), range(6)) == [0, 1, 4, 9, 16, 25]


@pytest.mark.cluster
def test_a_cluster_may_shrink(processes, client):
    timer = later(0.3, lambda: processes.scale(1))
    found = ClusterPool(client).run(wait_and_square, (0.2, None), range(12))
    timer.join()
    assert found == [k * k for k in range(12)]


@pytest.mark.cluster
def test_without_workers_a_job_ends(processes, client, monkeypatch):
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 1.0)
    timer = later(0.3, lambda: processes.scale(0))
    with pytest.raises(RuntimeError, match=r"lost: 0, 1, 2|lost are 0, 1, 2"):
        ClusterPool(client).run(wait_and_square, (1.0, None), range(12))
    timer.join()


def test_tasks_that_no_worker_may_run_end_with_a_sentence(monkeypatch):
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 0.5)
    settings = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=1, **settings) as one, Client(one) as client:
        future = client.submit(abs, -1, resources={"GPU": 1})
        with pytest.raises(RuntimeError, match=r"1 tasks of the cluster may run on none"):
            cluster._finish(client, 1, lambda left: [future])


def test_without_a_client_or_workers_it_is_said(monkeypatch):
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match="no Dask client"):
        find_client(None)
    with (
        LocalCluster(n_workers=0, dashboard_address=None, processes=False) as empty,
        Client(empty) as client,
        pytest.raises(RuntimeError, match="has no workers"),
    ):
        ClusterPool(client).run(wait_and_square, (0.0, None), range(2))


@pytest.mark.cluster
@pytest.mark.parametrize("max_cells", [10**6, 200])
def test_a_fit_survives_a_killed_worker_with_the_same_bits(client, monkeypatch, max_cells):
    monkeypatch.setattr(train, "POOL_ROWS", 100)
    for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_500), ("HELD_ROWS", 900)):
        monkeypatch.setattr(pieces_module, name, value)
    X, y = problem()
    parameters = QUICK | {"max_cells": max_cells, "n_members": 6}
    local = BinaryTreeGPRegressor(**parameters).fit(X, y)
    pid = pid_of_first_worker(client)
    timer = later(0.5, lambda: os.kill(pid, signal.SIGKILL))
    model = DaskBinaryTreeGPRegressor(client=client, **parameters)
    model.fit(da.from_array(X, chunks=300), da.from_array(y, chunks=300))
    timer.join()
    assert_same(model.to_local(), local, X[:100])


@pytest.fixture
def full_disk(tmp_path):
    """A folder whose file system has no space left after a moment."""
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if mount is None or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.cluster
def test_a_fit_goes_on_if_the_disks_of_workers_are_full(full_disk, monkeypatch):
    """Workers that cannot spill what they hold keep it in memory."""
    for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_500), ("HELD_ROWS", 900)):
        monkeypatch.setattr(pieces_module, name, value)
    parameters = QUICK | {"max_cells": 2_000}
    spill = {"target": 0.01, "spill": 0.02, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{k}": v for k, v in spill.items()}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit="2GB",
            local_directory=str(full_disk),
        ) as workers,
        Client(workers) as client,
    ):
        X = da.random.default_rng(0).random((400_000, 8), chunks=(50_000, 8)).persist()
        y = (3 * X[:, 0]).persist()
        model = DaskBinaryTreeGPRegressor(client=client, **parameters).fit(X, y)
        assert shutil.disk_usage(full_disk).free < 2**20
        rows, targets = X.compute(), y.compute()
        found = model.to_local()
    assert_same(found, BinaryTreeGPRegressor(**parameters).fit(rows, targets), rows[:100])


@pytest.mark.cluster
def test_a_failed_fit_leaves_the_model_as_it_was(processes, client, monkeypatch):
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 1.0)
    X, y = problem(400)
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK).fit(da.from_array(X, 200), y)
    before = model.predict(X[:10])
    processes.scale(0)
    with pytest.raises(RuntimeError, match=r"no workers|are lost"):
        model.fit(da.from_array(2 * X, chunks=200), 2 * y)
    assert (model.predict(X[:10]) == before).all()


def test_what_is_lost_runs_again_in_one_process():
    """The same logic without processes: results are cancelled twice, then they come."""
    settings = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=1, **settings) as one, Client(one) as client:
        turns = []

        def submit(left):
            turns.append(list(left))
            futures = [client.submit(wait_and_square, (0.0, None), k, pure=False) for k in left]
            if len(turns) < 3:
                client.cancel(futures[1:])
            return futures

        assert cluster._finish(client, 3, submit) == [0, 1, 4]
    assert len(turns) == 3
    assert turns[0] == [0, 1, 2]
