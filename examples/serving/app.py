"""A fitted model behind HTTP: means, deviations and intervals of one row or many.

    pip install fastapi uvicorn
    TRIEGP_MODEL=model.triegp uvicorn app:app

Endpoints are plain functions, so FastAPI calls them in threads; they share one model.
"""

import os
import threading
from contextlib import asynccontextmanager
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from triegp import serving

Row = list[float | None]  # None is a gap


class Question(BaseModel):
    """Rows of features, and the share of new observations that intervals should contain."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=10_000)]
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9


class Answer(BaseModel):
    """One number per row."""

    mean: list[float]
    std: list[float]
    low: list[float]
    high: list[float]
    outside_box: list[bool]


models = {}


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Load the model, which answers at once, and compile its kernels meanwhile."""
    model = models["model"] = serving.load(os.environ["TRIEGP_MODEL"])
    compiling = app.state.compiling = threading.Thread(target=model.compile)
    compiling.start()
    yield
    compiling.join()
    models.clear()


app = FastAPI(title="triegp", lifespan=lifespan)


@app.post("/predict")
def predict(question: Question) -> Answer:
    """Predict new observations."""
    model = models["model"]
    if any(len(row) != model.n_features_in_ for row in question.rows):
        raise HTTPException(422, f"every row must have {model.n_features_in_} features")
    rows = np.array(question.rows, dtype=np.float64)
    distribution = model.predict_distribution(rows)
    low, high = distribution.interval(question.coverage).T
    return Answer(
        mean=distribution.mean().tolist(),
        std=distribution.std().tolist(),
        low=low.tolist(),
        high=high.tolist(),
        outside_box=model.outside_box(rows).tolist(),
    )
