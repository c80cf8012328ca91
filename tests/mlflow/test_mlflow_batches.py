"""Scoring partitions of Dask frames and batches of Spark frames through MLflow."""

import functools
import importlib.util
import shutil
import sys

import pandas as pd
import pytest

pytest.importorskip("mlflow.pyfunc", reason="needs the extra mlflow: make mlflow-test")

import mlflow

from mlflow_problems import WARNED, mixture, table
from triegp.mlflow import save_model

pytestmark = WARNED


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches") / "model"
    save_model(mixture(), folder, input_example=table()[0].head(20))
    return str(folder)


@functools.cache
def scorer(uri):
    return mlflow.pyfunc.load_model(uri)


def score(part, uri, params=None):
    return scorer(uri).predict(part, params=params)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_partitions_of_a_dask_frame(folder, scheduler):
    dd = pytest.importorskip("dask.dataframe", reason="needs the extra dask")
    X = table(90, seed=1)[0]
    frame = dd.from_pandas(X, npartitions=4)
    meta = score(X.head(1), folder).iloc[:0]
    found = frame.map_partitions(score, folder, meta=meta).compute(scheduler=scheduler)
    pd.testing.assert_frame_equal(found, score(X, folder), check_exact=True)


def test_empty_partitions_and_params(folder):
    dd = pytest.importorskip("dask.dataframe", reason="needs the extra dask")
    X, params = table(90, seed=1)[0], {"output": ["low", "high"], "coverage": 0.5}
    frame = dd.from_pandas(X, npartitions=5)
    meta = score(X, folder, params).iloc[:0]
    none = frame[frame["a"] > 2].map_partitions(score, folder, params, meta=meta)
    assert none.compute(scheduler="synchronous").shape == (0, 2)
    few = frame[frame["a"] < 0.05]
    sizes = few.map_partitions(len).compute(scheduler="synchronous").tolist()
    assert 0 in sizes
    assert sum(sizes) > 0
    found = few.map_partitions(score, folder, params, meta=meta).compute(scheduler="synchronous")
    expected = score(X[X["a"] < 0.05], folder, params)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


NO_SPARK = importlib.util.find_spec("pyspark") is None or shutil.which("java") is None


@pytest.mark.skipif(NO_SPARK, reason="needs pyspark and Java, which no extra brings")
@pytest.mark.filterwarnings("ignore")  # Spark's and py4j's own
def test_a_function_for_spark_frames(folder, monkeypatch):
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    X = table(60, seed=1)[0].assign(row=range(60))
    X = X.astype({"town": "object", "kind": "object"})
    expected = score(X.drop(columns="row"), folder)
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        udf = mlflow.pyfunc.spark_udf(spark, folder, env_manager="local")
        frame = spark.createDataFrame(X).repartition(3)
        frame = frame.withColumn("found", udf(*X.columns[:-1]))
        rows = frame.select("row", "found.*").toPandas().sort_values("row").drop(columns="row")
    finally:
        spark.stop()
    pd.testing.assert_frame_equal(rows.reset_index(drop=True), expected, check_exact=True)
