"""Time budgets: random ones, and what must hold after a fit with each."""

from __future__ import annotations

import resource
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from tools.stop_cases import BrokenError, look, same
from tools.stop_scenes import KINDS, make_rows

MOST_ROWS = {"mixture": 1e5, "forest": 3e3}
SHARE, SECONDS = {"mixture": 0.2, "forest": 0.25}, 2.0  # by which a budget may be exceeded
ATTEMPTS = 3  # other work on the machine takes time, too


def draw_budget(seed: int, case: int) -> dict[str, Any]:
    """One case: rows, targets, how it is fitted, and the budget as a share of the full time."""
    draw = np.random.default_rng([seed, case, 1])
    kind = str(draw.choice(KINDS))
    return {
        "kind": kind,
        "n_rows": int(np.exp(draw.uniform(np.log(30), np.log(MOST_ROWS[kind])))),
        "n_targets": int(draw.choice([1, 1, 1, 3])),
        "transform": str(draw.choice(["identity", "identity", "auto"])),
        "how": str(draw.choice(["fit", "fit", "refit", "thread"])),
        "n_jobs": int(draw.choice([1, 2])),
        "quick": bool(draw.integers(3)),
        "share": float(np.exp(draw.uniform(np.log(1e-3), np.log(1.5)))),
    }


def run_budget(case: dict[str, Any]) -> str:
    """Fit without and with a budget; raises BrokenError unless it is kept and the model is whole.

    The case gets the seconds that the fit took, on the wall and of each core. A budget that is
    exceeded is tried again: other processes share the machine.
    """
    X, y = make_rows(case["n_rows"], case["n_rows"])
    if case["n_targets"] > 1:
        y = np.stack([y, y + y**2, X[:, 0] - y], axis=1)
    y, new = np.exp(y), make_rows(50, 1)[0]
    free = _start(case, X, y)
    full, _, _ = _finish(case, free, X, y)
    budget = max(1e-3, case["share"] * full)
    allowed = budget + max(SHARE[case["kind"]] * budget, SECONDS)
    case |= {"full": full, "budget": budget, "attempts": 0, "took": np.inf}
    while case["took"] > allowed:
        if case["attempts"] == ATTEMPTS:
            raise BrokenError(f"{budget:.3f} s took {case['took']:.3f}, cpu {case['cpu']:.3f}")
        model = _start(case, X, y).set_params(time_budget=budget)
        case["took"], case["cpu"], told = _finish(case, model, X, y)
        case["attempts"] += 1
    if told != model.stopped_early_:
        raise BrokenError(f"stopped_early_ is {model.stopped_early_}, a warning came: {told}")
    mean, std = model.predict(new, return_std=True)
    ends = model.predict_interval(new)
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise BrokenError("predictions are not finite")
    if not (np.isfinite(ends).all() and (ends[:, 0] < ends[:, 1]).all()):
        raise BrokenError("intervals are not in order")
    if model.stopped_early_:
        return "shortened"
    if not same(look(model, new), look(free, new)):
        raise BrokenError("a budget that was not used changed the model")
    return "not used"


def _start(case: dict[str, Any], X: Any, y: Any) -> Any:
    """The estimator; fitted to half of the rows if a refit is to be timed."""
    from triegp import BinaryTreeGPRegressor, TrieGPRegressor

    estimator = BinaryTreeGPRegressor if case["kind"] == "mixture" else TrieGPRegressor
    model = estimator(random_state=0, n_jobs=case["n_jobs"], target_transform=case["transform"])
    if case["quick"]:
        model.set_params(max_iter=20)
    if case["how"] == "refit":
        half = len(y) // 2
        model.fit(X[:half], y[:half]).partial_fit(X[half:], y[half:])
    return model


def _finish(case: dict[str, Any], model: Any, X: Any, y: Any) -> tuple[float, float, bool]:
    """Fit: seconds on the wall, seconds of each core, and whether a warning names the budget."""
    work: Callable[[], Any] = lambda: model.fit(X, y)  # noqa: E731
    if case["how"] == "refit":
        work = lambda: model.predict(X[:2])  # noqa: E731
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        began, cpu = time.monotonic(), _cpu_seconds()
        if case["how"] == "thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        seconds, used = time.monotonic() - began, _cpu_seconds() - cpu
    named = any("time_budget" in str(one.message) for one in told)
    return seconds, used / case["n_jobs"], named


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
