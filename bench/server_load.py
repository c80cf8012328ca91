"""A small FastAPI server under load: milliseconds of a request, for 1 and 8 clients.

    pip install 'triegp[bench-serving]'
    python -m bench.server_load [--requests 1000]

Starts one uvicorn process on 127.0.0.1 that loads a model file, sends it requests of one row each,
and prints the median, the 99th percentile and the requests per second. Endpoints run in threads, or
one after another on the loop (`async def`). Client and server share the cores of the machine.
"""

import argparse
import asyncio
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import httpx
import numpy as np

from bench.latency import N_FEATURES, make_rows
from triegp import BinaryTreeGPRegressor

FILE = "TRIEGP_BENCH_MODEL"
WAIT_SECONDS = 120


def make_app():
    """The server: POST with {"row": [...]} returns mean, lower and upper end."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    import triegp

    warnings.simplefilter("ignore")
    model = triegp.load(os.environ[FILE])
    model.predict_interval(np.full((1, N_FEATURES), 0.5))  # kernels are loaded before requests come

    class Asked(BaseModel):
        row: list[float]

    app = FastAPI()

    def predict(asked: Asked) -> dict[str, float]:
        X = np.array([asked.row])
        (low, high), (mean,) = model.predict_interval(X)[0], model.predict(X)
        return {"mean": mean, "low": low, "high": high}

    app.post("/threads")(predict)  # FastAPI calls a plain function in a thread

    @app.post("/loop")
    async def interval(asked: Asked) -> dict[str, float]:
        return predict(asked)

    return app


async def ask(url: str, n_requests: int, n_clients: int) -> list[float]:
    """Seconds of each request; every client sends its next one when the last is answered."""
    rows = np.random.default_rng(1).random((n_requests, N_FEATURES)).tolist()
    took: list[float] = []
    async with httpx.AsyncClient() as client:

        async def send() -> None:
            while rows:
                start = time.perf_counter()
                answer = await client.post(url, json={"row": rows.pop()})
                answer.raise_for_status()
                took.append(time.perf_counter() - start)

        await asyncio.gather(*(send() for _ in range(n_clients)))
    return took


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(server: subprocess.Popen[bytes], port: int) -> float:
    """Seconds until the server answers."""
    start = time.perf_counter()
    while time.perf_counter() - start < WAIT_SECONDS:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with exit status {server.returncode}")
        try:
            httpx.get(f"http://127.0.0.1:{port}/openapi.json", timeout=1.0)
            return time.perf_counter() - start
        except httpx.TransportError:
            time.sleep(0.02)
    raise TimeoutError(f"the server did not answer within {WAIT_SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        rows = make_rows(10_000, np.random.default_rng(0))
        BinaryTreeGPRegressor(random_state=0).fit(*rows).save(path)
        port = free_port()
        options_of = f"--host 127.0.0.1 --port {port} --log-level warning --factory"
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *options_of.split(), "bench.server_load:make_app"],
            env={**os.environ, FILE: str(path)},
        )
        try:
            print(f"started in {wait_for(server, port):.2f} s", flush=True)
            for way, n_clients in itertools.product(("threads", "loop"), (1, 8)):
                url = f"http://127.0.0.1:{port}/{way}"
                asyncio.run(ask(url, 50, 1))
                start = time.perf_counter()
                took = asyncio.run(ask(url, options.requests, n_clients))
                rate = len(took) / (time.perf_counter() - start)
                half, most = 1e3 * np.quantile(took, (0.5, 0.99))
                times = f"p50 {half:.2f} ms, p99 {most:.2f} ms, {rate:.0f} / s"
                print(f"{way}, {n_clients} clients: {times}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
