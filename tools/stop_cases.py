"""Ctrl-C during a call: the cases, and what must hold after each."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tools.pressing import Presser
from tools.stop_scenes import KINDS, OF_MIXTURES, SCENES, Scene

NARROW = (
    "estimators/base.py",
    "estimators/fitted.py",
    "estimators/pieces.py",
    "estimators/mixture_regressor.py",
    "models/jobs.py",
    "models/run.py",
    "cpu/threads.py",
    "cpu/blas.py",
    "files/whole.py",
    "/contextlib.py",
    "/threading.py",
    "/warnings.py",
    "concurrent/futures",
)
WIDE = ("/triegp/",)
MOMENTS = ("a moment", "an instruction")


class BrokenError(Exception):
    """What a call that was stopped must not leave behind."""


# What a model says


def look(model: Any, new: Any) -> dict[str, Any]:
    """All that a model says, as arrays and texts; waiting rows are inserted."""
    if not hasattr(model, "_stream"):
        return {"fitted": sorted(name for name in vars(model) if name.endswith("_"))}
    mean, std = model.predict(new, return_std=True)
    said: dict[str, Any] = {
        "mean": mean,
        "std": std,
        "interval": model.predict_interval(new),
        "loo_score_": model.loo_score_,
        "n_rows_": model.n_rows_,
        "columns_": repr((model.columns_.names, model.columns_.kinds)),
        "n_features_in_": model.n_features_in_,
        "feature_names_in_": list(getattr(model, "feature_names_in_", [])),
        "stopped_early_": model.stopped_early_,
        "n_evaluations_": model.n_evaluations_,
        "curve": pickle.dumps(model.training_curve_),
        "repr": repr(model).split("fitted:")[-1],
        "shape": model.one_dimensional_,
    }
    if not model._stream.fitted[0].n_summed:
        said |= {"loo": np.stack(model.loo_predict())}
    if model.rows_ is not None:
        said |= {"rows": np.asarray(model.rows_.features), "y": model.rows_.y}
    return said


def same(a: Any, b: Any) -> bool:
    """Whether two answers have the same bits, NaN included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, float)):
        return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b, equal_nan=True))
    return bool(a == b)


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of the answers that differ."""
    return [name for name in a.keys() | b.keys() if not same(a.get(name), b.get(name))]


# What a process must look like afterwards


def surroundings() -> dict[str, Any]:
    """State of the process that a call must leave as it was."""
    from threadpoolctl import threadpool_info

    return {
        "handler of SIGINT": signal.getsignal(signal.SIGINT),
        "warning filters": list(warnings.filters),
        "numpy's error state": np.geterr(),
        "threads of BLAS": [one["num_threads"] for one in threadpool_info()],
    }


def check_surroundings(before: dict[str, Any]) -> None:
    """Raise BrokenError if a call has left something changed, or a thread that runs on."""
    now = surroundings()
    changed = [name for name in before if now[name] != before[name]]
    if changed:
        raise BrokenError(f"changed: {', '.join(changed)}")
    deadline = time.monotonic() + 20.0
    while busy := [t.name for t in threading.enumerate() if _is_stray(t)]:
        if time.monotonic() > deadline:
            raise BrokenError(f"threads that do not end: {busy}")
        time.sleep(0.05)


def _is_stray(thread: threading.Thread) -> bool:
    return thread is not threading.main_thread() and not thread.name.startswith("triegp")


def check_usable(scene: Scene, folder: Path) -> None:
    """Raise BrokenError unless the model predicts, takes rows, is saved, and its lock is free."""
    from triegp import load
    from triegp.engines.cpu.threads import run_each

    model = scene.model
    if run_each(lambda k: 2 * k, range(20), 2) != [2 * k for k in range(20)]:
        raise BrokenError("the thread pool does not work")
    if not hasattr(model, "_stream"):
        return
    if not model._lock.acquire(timeout=5.0):
        raise BrokenError("the model is locked")
    model._lock.release()
    mean, std = model.predict(scene.new, return_std=True)
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise BrokenError("predictions are not finite")
    if isinstance(model.target_transform, str):
        model.save(folder / "afterwards")
        again, _ = load(folder / "afterwards").predict(scene.new, return_std=True)
        (folder / "afterwards").unlink()
        if not same(again, mean):
            raise BrokenError("the saved model says something else")
    n = model.n_rows_
    refit = model.refit
    model.set_params(refit=False)
    model.partial_fit(scene.new[:2], mean[:2])
    model.set_params(refit=refit)
    if model.n_rows_ != n + 2 or not np.isfinite(model.predict(scene.new)).all():
        raise BrokenError("rows cannot be added")


# Cases of Ctrl-C, in a process of their own


def draw_case(seed: int, case: int) -> dict[str, Any]:
    """One case of Ctrl-C: a scene, its options, and when to press."""
    draw = np.random.default_rng([seed, case])
    names = list(SCENES)
    scene = names[case % len(names)]
    kind = "mixture" if scene in OF_MIXTURES else str(draw.choice(KINDS))
    n_presses = int(draw.choice([1, 1, 2, 3]))
    return {
        "scene": scene,
        "kind": kind,
        "on_interrupt": str(draw.choice(["raise", "keep"])),
        "n_jobs": int(draw.choice([1, 2])),
        "moment": MOMENTS[int(draw.integers(2))],
        "wide": bool(draw.integers(2)),
        "at": float(draw.random()),
        "gaps": [float(gap) for gap in draw.exponential(0.15, n_presses - 1)],
    }


def make_scene(case: dict[str, Any], folder: Path) -> Scene:
    """The scene of a case, with its files in an empty folder."""
    options = {"on_interrupt": case["on_interrupt"], "n_jobs": case["n_jobs"]}
    return SCENES[case["scene"]](case["kind"], options, folder)


class Reference:
    """What a scene looks like before, and after a call that was not stopped.

    Attributes
    ----------
    before, after : dict
        What the model says.
    returned : Any
        What the call returned, if that is no estimator.
    old, new : bytes or None
        The file that is written.
    seconds : float
        What the call takes.
    counts : dict
        Number of instructions of the files of NARROW and of WIDE, by whether it is wide.
    """

    def __init__(self, case: dict[str, Any], folder: Path) -> None:
        folder.mkdir()
        scene = make_scene(case, folder)
        self.names = sorted(os.listdir(folder))
        self.before = look(scene.model, scene.new)
        self.old = scene.written.read_bytes() if scene.written else None
        scene = make_scene(case, folder)
        began = time.monotonic()
        with scene.context:
            returned = scene.act()
        self.seconds = time.monotonic() - began
        self.returned = None if returned is scene.model else returned
        self.after = look(scene.model, scene.new)
        self.new = scene.written.read_bytes() if scene.written else None
        self.counts: dict[bool, int] = {}
        for wide in (False, True):
            scene = make_scene(case, folder)
            counter = Presser(WIDE if wide else NARROW)
            with scene.context:
                counter.run(scene.act)
            self.counts[wide] = counter.n_seen
        self.names = sorted({*self.names, *os.listdir(folder)})


def run_stopped(case: dict[str, Any], reference: Reference, folder: Path, tell: Any) -> str:
    """Run the call of a case, which is stopped from outside or by a Presser; what came of it."""
    scene = make_scene(case, folder)
    before = surroundings()
    work: Callable[[], Any] = scene.act
    presser = None
    if case["moment"] == "an instruction":
        count = reference.counts[case["wide"]]
        presser = Presser(WIDE if case["wide"] else NARROW, at=1 + int(case["at"] * count))
        work = lambda: presser.run(scene.act)  # noqa: E731
    ended, returned, handler = "finished", None, None
    raised: BaseException | None = None
    with scene.context, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before["warning filters"] = list(warnings.filters)
        try:
            tell(b"begin\n")
            returned = work()
        except KeyboardInterrupt as error:
            ended, raised = "raised", error
        while handler is None:  # Ctrl-C may still come
            try:
                handler = signal.getsignal(signal.SIGINT)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            except KeyboardInterrupt:
                handler = None
        tell(b"ended\n")
        signal.signal(signal.SIGINT, handler)
        sys.settrace(None)
        check_surroundings(before)
    case["place"] = presser.place if presser else ""
    texts = [str(one.message) for one in told]
    if raised is not None and case["on_interrupt"] == "keep" and not case["gaps"]:
        inside = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
        if "_train_calibrated" in inside and "choose_by_mixtures" not in inside:
            raise BrokenError(f"Ctrl-C during training was not kept: {inside[-4:]}")
    return judge(case, reference, scene, ended, returned, texts, folder)


def judge(
    case: dict[str, Any],
    reference: Reference,
    scene: Scene,
    ended: str,
    returned: Any,
    told: list[str],
    folder: Path,
) -> str:
    """What came of a call that was stopped; raises BrokenError if that is not whole."""
    names = set(os.listdir(folder)) - set(reference.names)
    if names:
        raise BrokenError(f"files were left: {sorted(names)}")
    if scene.written is not None:
        content = scene.written.read_bytes()
        whole = content == reference.old or _same_file(content, reference.new, scene.written)
        if not whole:
            raise BrokenError(f"neither file, but {len(content)} bytes")
        if ended == "finished" and content == reference.old != reference.new:
            raise BrokenError("it ended, and the file is the old one")
    stopped = any("Ctrl-C" in text for text in told)
    found = look(scene.model, scene.new)
    kept = "stopped_early_" in found and found["stopped_early_"]
    if ended == "finished" and not kept:
        if not same(found, reference.after):
            raise BrokenError(f"it ended, but differs: {differences(found, reference.after)}")
        if returned is not scene.model and not same(returned, reference.returned):
            raise BrokenError("it returned something else")
        outcome = "finished"
    elif kept and case["on_interrupt"] == "keep" and scene.trains:
        if ended == "finished" and not stopped:
            raise BrokenError("training was shortened without a warning")
        for name in ("mean", "std", "interval", "loo_score_"):
            if not np.isfinite(found[name]).all():
                raise BrokenError(f"{name} is not finite")
        if found["n_rows_"] != reference.after["n_rows_"]:
            raise BrokenError(f"{found['n_rows_']} rows are in")
        outcome = "shortened"
    elif same(found, reference.before):
        outcome = "as before"
    elif same(found, reference.after):
        outcome = "done, then raised"
    elif case["scene"] == "partial_fit and predict" and _rows_are_whole(found, reference):
        outcome = "done in part"
    else:
        raise BrokenError(
            f"neither as before ({differences(found, reference.before)}) "
            f"nor done ({differences(found, reference.after)}), {ended}"
        )
    check_usable(scene, folder)
    return outcome


def _same_file(content: bytes, expected: bytes | None, path: Path) -> bool:
    """Whether a file is whole; reports contain times."""
    if path.name.endswith(".html"):
        return content.rstrip().endswith(b"</html>")
    return content == expected


def _rows_are_whole(found: dict[str, Any], reference: Reference) -> bool:
    """Whether some of several batches were added, each as a whole."""
    added = found["n_rows_"] - reference.before["n_rows_"]
    return added in (0, 5, 13, 73) and bool(np.isfinite(found["mean"]).all())
