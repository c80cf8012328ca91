"""How things are measured: medians of repeated runs, peak memory, growth, the machine."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(os.environ.get("TRIEGP_RESULTS", Path(__file__).parent / "results"))


def seconds(work, repeats=7, budget=20.0):
    """Median wall-clock time of work(); at most `repeats` runs, fewer where they take long."""
    times = []
    while len(times) < repeats and (len(times) < 2 or sum(times) < budget):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        del result
    return float(np.median(times))


def extra_peak_bytes(work):
    """By how much work() raises the resident size of this process at its highest (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest size so far
    before = resident_bytes()
    result = work()
    peak = peak_bytes() - before
    del result
    return peak


def resident_bytes():
    """Memory of this process now (Linux)."""
    return _status("VmRSS")


def peak_bytes():
    """Memory of this process at its highest (Linux)."""
    return _status("VmHWM")


def _status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


def in_fresh_process(module, *arguments, **environment):
    """JSON that `python -m module arguments` prints last."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout.splitlines()[-1])


def slope(n, t):
    """Growth exponent: least-squares slope of log t over log n."""
    return float(np.polyfit(np.log(n), np.log(t), 1)[0])


def machine(more=()):
    """What the figures were measured on; `more` are modules whose versions matter, too."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    packages = ("triegp", "numpy", "scipy", "scikit-learn", "numba", *more)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _gpu(more),
        "python": platform.python_version(),
        **{name: _version(name.replace("_", "-")) for name in packages},
    }


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return None


def _gpu(modules):
    """Name of the GPU that a method with these modules has used; None if there is none."""
    if "numba_cuda" in modules:
        from numba import cuda

        name = cuda.get_current_device().name if cuda.is_available() else None
        return name.decode() if isinstance(name, bytes) else name
    torch = sys.modules.get("torch") if "torch" in modules else None
    if torch is None or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(0)
