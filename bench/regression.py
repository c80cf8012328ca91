"""The regressor on the paper's splits: NLL, RMSE, CRPS, coverage, time.

    python -m bench.regression --part valid NAME ...        tuning: never loads the test part
    python -m bench.regression --part test [--seeds 0 1 2] [--preset default] NAME ...

One JSON a (data, preset, seed) in bench/results/regression; a cell that is there is not run again.
The paper's BT is the best member of its BTE, so one run of "paper-bte" gives both.
"""

import argparse
import json
import time

import numpy as np

from bench.data import SEVEN, load
from bench.measure import RESULTS, machine
from triegp import BinaryTreeGPRegressor
from triegp.mixture import Mixture, crps, distribution, log_density, mixture_mean

FOLDER = RESULTS / "regression"


def score(mixture, y, sd):
    """Scores on the standardised target."""
    level = distribution(mixture, y)
    inside = {c: float(np.mean(np.abs(level - 0.5) < c / 200)) for c in (50, 90, 99)}
    return {
        "nll": float(-np.mean(log_density(mixture, y)) - np.log(sd)),
        "rmse": float(np.sqrt(np.mean((mixture_mean(mixture) - y) ** 2)) / sd),
        "crps": float(np.mean(crps(mixture, y)) / sd),
        "coverage": inside,
    }


def run(name, preset, seed, part, **parameters):
    (X, y), (X_new, y_new) = load(name, seed, "train", part)
    model = BinaryTreeGPRegressor(preset=preset, random_state=seed, keep_rows=False, **parameters)
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    mixture = model.predict_distribution(X_new)
    predicted = time.perf_counter()
    sd = y.std(ddof=1)
    cell = {
        "data": name,
        "preset": preset,
        "seed": seed,
        "part": part,
        "parameters": parameters,
        **score(mixture, y_new, sd),
        "loo_nll": -model.loo_score_ - float(np.log(sd)),
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "n_train": len(y),
        "n_members": len(mixture.weight),
        "n_evaluations": model.n_evaluations_,
        "machine": machine(),
    }
    if preset == "paper-bte":  # the softmax gives the member with the lowest nll most weight
        best = [int(np.argmax(mixture.weight))]
        alone = Mixture(np.ones(1), mixture.mean[best], mixture.var[best])
        cell["bt"] = score(alone, y_new, sd)
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=SEVEN)
    parser.add_argument("--part", choices=("valid", "test"), required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--presets", nargs="+", default=["default"])
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for preset in options.presets:
        for name in options.names or SEVEN:
            for seed in options.seeds:
                path = FOLDER / f"{options.part}-{preset}-{name}-{seed}.json"
                if not path.exists():
                    cell = run(name, preset, seed, options.part)
                    path.write_text(json.dumps(cell, indent=1) + "\n")
                cell = json.loads(path.read_text())
                print(
                    f"{options.part} {preset:10s} {name:15s} {seed} nll {cell['nll']:7.3f} "
                    f"rmse {cell['rmse']:.3f} cover {cell['coverage']['90']:.3f} "
                    f"fit {cell['fit_seconds']:.1f} s, {cell['n_evaluations']} evaluations",
                    flush=True,
                )


if __name__ == "__main__":
    main()
