"""Fit times of the regressor: against LightGBM, growth with n, and what is not likelihood.

python -m bench.times    about ten minutes, needs lightgbm; writes bench/results/times.json
"""

import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))

import numpy as np

from bench.data import SEVEN, load
from bench.measure import RESULTS, machine, slope
from bench.scaling import synthetic
from triegp import BinaryTreeGPRegressor, BitEncoder
from triegp.engines import CpuEngine
from triegp.tree import BitOrder, evaluate_orders, random_bits, uniform_weights


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def against_lightgbm(name, seed=0, repeats=3):
    """Both fits in turns, on all cores; LightGBM stops early on the validation part."""
    import lightgbm

    (X, y), (X_valid, y_valid) = load(name, seed, "train", "valid")

    def boost():
        model = lightgbm.LGBMRegressor(
            learning_rate=0.05, num_leaves=63, n_estimators=3000, verbosity=-1
        )
        return model.fit(
            X,
            y,
            eval_set=[(X_valid, y_valid)],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )

    def ours():
        return BinaryTreeGPRegressor(engine="cpu", random_state=seed).fit(X, y)

    wall, cpu = {"triegp": [], "lightgbm": []}, {"triegp": [], "lightgbm": []}
    for _ in range(repeats):
        for method, work in (("lightgbm", boost), ("triegp", ours)):
            start = time.process_time()
            wall[method].append(timed(work)[0])
            cpu[method].append(time.process_time() - start)
    found = {method: float(np.median(times)) for method, times in wall.items()}
    found |= {f"{method}_cpu": float(np.median(times)) for method, times in cpu.items()}
    return {"data": name, **found, "ratio": found["triegp"] / found["lightgbm"]}


def growth():
    rows = []
    for n in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        X, y = synthetic(n)
        model = BinaryTreeGPRegressor(random_state=0, keep_rows=False)
        seconds, _ = timed(lambda X=X, y=y, model=model: model.fit(X, y))
        rows.append({"n": n, "fit": seconds, "evaluations": model.n_evaluations_})
        print(json.dumps(rows[-1]), flush=True)
    return {
        "rows": rows,
        "slope": slope([r["n"] for r in rows], [r["fit"] for r in rows]),
    }


def overhead(n=10_000, n_members=24):
    """Fit time over evaluations x time of one evaluation with all cores busy / cores."""
    X, y = synthetic(n)
    y = (y - y.mean()) / y.std()
    codes = BitEncoder(shift="random", random_state=0).fit(X).encode(X)
    rng = np.random.default_rng(0)
    weights = uniform_weights(codes.n_bits, last=0.5)
    orders = [BitOrder.from_weights(random_bits(codes.precision, rng), weights) for _ in range(400)]
    evaluate_orders(codes, orders[:8], y, 1e-5, gradient=True)
    model = BinaryTreeGPRegressor(random_state=0, n_members=n_members, keep_rows=False)
    fits, alone = [], []
    for _ in range(7):
        seconds, _ = timed(
            lambda: evaluate_orders(codes, orders, y, 1e-5, gradient=True, engine=CpuEngine())
        )
        alone.append(seconds / len(orders))  # one evaluation / cores
        fits.append(timed(lambda: model.fit(X, y))[0])
    n_candidates = 30 * n_members
    # A candidate has no gradient: counted as one evaluation, which it is a little less than.
    likelihoods = model.n_evaluations_ + n_candidates
    return {
        "n": n,
        "fit": float(np.median(fits)),
        "evaluations": likelihoods,
        "one_evaluation_over_cores": float(np.median(alone)),
        "ratio": float(np.median(fits) / (likelihoods * np.median(alone))),
    }


def main():
    result = {"machine": machine()}
    result["lightgbm_machine"] = machine(("lightgbm",))
    result["overhead"] = [overhead(10_000), overhead(50_000)]
    print(json.dumps(result["overhead"]), flush=True)
    result["lightgbm"] = [against_lightgbm(name) for name in SEVEN]
    print(json.dumps(result["lightgbm"]), flush=True)
    logs = np.log([row["ratio"] for row in result["lightgbm"]])
    result["ratio"] = float(np.exp(logs.mean()))
    result["growth"] = growth()
    (RESULTS / "times.json").write_text(json.dumps(result, indent=1) + "\n")
    print(result["growth"]["slope"])


if __name__ == "__main__":
    main()
