"""Best value after some trials: TrieSampler beside Optuna's samplers.

`python -m bench.optuna_search`, with Optuna installed. The sampler's model and acquisition were
chosen on these functions with seeds 0 to 2; the seeds here are others.
"""

import argparse
import time

import numpy as np
import optuna

from triegp.optuna import TrieSampler

FIRST_SEED = 100
SAMPLERS = {
    "random": optuna.samplers.RandomSampler,
    "TPE": optuna.samplers.TPESampler,
    "TrieSampler": TrieSampler,
}


def branin(trial):
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    curve = y - 5.1 / (4 * np.pi**2) * x * x + 5 / np.pi * x - 6
    return curve**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def mixed(trial):
    rate = trial.suggest_float("rate", 1e-5, 1, log=True)
    width = trial.suggest_int("width", 1, 256, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    grid = trial.suggest_float("grid", 0, 0.5, step=0.05)
    depth = trial.suggest_int("depth", 1, 10)
    loss = (np.log10(rate) + 2.5) ** 2 + (np.log2(width) - 5) ** 2 / 4 + 10 * (grid - 0.2) ** 2
    return loss + {"a": 1, "b": 0, "c": 2}[kind] + 0.1 * abs(depth - 7)


def hartmann(trial):
    x = np.array([trial.suggest_float(f"x{k}", 0, 1) for k in range(6)])
    A = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return -(np.array([1, 1.2, 3, 3.2]) * np.exp(-(A * (x - P) ** 2).sum(axis=1))).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name, make in SAMPLERS.items():
        for objective in (branin, mixed, hartmann):
            start, best = time.perf_counter(), []
            for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
                study = optuna.create_study(sampler=make(seed=seed))
                study.optimize(objective, n_trials=given.trials)
                best.append(study.best_value)
            seconds = (time.perf_counter() - start) / given.seeds
            shown = " ".join(f"{value:.3f}" for value in best)
            print(
                f"{name:12} {objective.__name__:9} {np.mean(best):.3f} ({shown}) {seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
