"""Try to break model files: damage them in many ways.

    python -m tools.break_files --count 10000           a new seed, which is printed
    python -m tools.break_files --seed 7 --count 10000  the same damages again
    python -m tools.break_files --seed 7 --case 123     one of them, with its traceback
    python -m tools.break_files --checked               kernels are compiled anew to check indices

A damaged file must be refused with a ModelFileError, or load as a model that is well defined
(`examine`). A model that holds its rows must learn again from them, or say why not (`refits`).
Files are read by another process with limited memory and time, so that a crash or an endless loop
is seen. The exit status is 1 if any file did anything else.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import secrets
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tools.model_kinds import KINDS, kept_files, new_rows, write_kinds
from tools.mutations import MUTATIONS, OF_BYTES, mutate
from tools.refits import STEPS, refit

SECONDS = 30.0  # of CPU time for one file, after which it counts as an endless loop
PATIENCE = 10.0  # times as long on the clock: other programs run, too
MEMORY = 2**31  # bytes of address space for one file, beside what an idle process has
LONGEST = 1000  # letters of an error that a person can read
AGREE = 1e-6  # difference of predictions with and without kernels, in deviations of y
OUT_OF_BOUNDS = "index is out of bounds"  # as compiled kernels that check say it
CHECKED = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": ".numba-checked"}
FINE = ("refused", "the same", "another model", "too large")


class BrokenError(Exception):
    """What a damaged file must not do."""


def ask(model: Any) -> list[Any]:
    """What a model says about new rows, as arrays."""
    rows = new_rows(model._stream.columns)
    said = [
        *model.predict(rows, return_std=True),
        *model.predict(rows, return_std=True, latent=True),
        model.predict_quantiles(rows, (0.05, 0.5, 0.95)),
    ]
    if model._stream.fitted[0].n_summed:  # rows that are summed up in cells cannot be left out
        return said
    return [*said, *model.loo_predict()]


def check_defined(said: list[Any], transformed: bool) -> None:
    """Raise BrokenError unless predictions are finite, deviations not negative, quantiles in order.

    transformed: the inverse of a transform may exceed float64, and is infinite there.
    """
    mean, std, latent_mean, latent_std, quantiles, *_ = said
    for part in (mean, std, latent_mean, latent_std, quantiles):
        if np.isnan(part).any() or (np.isinf(part).any() and not transformed):
            raise BrokenError("predictions are not finite")
    if std.min() < 0 or latent_std.min() < 0:
        raise BrokenError("a standard deviation is negative")
    if (quantiles[:, 1:] < quantiles[:, :-1]).any():
        raise BrokenError("quantiles fall")


def examine(path: Path, reference: list[Any], learned: list[str], steps: list[Any]) -> str:
    """What becomes of a damaged file, one of FINE; raises BrokenError, or what `load` raises.

    "refused": a ModelFileError of one sentence that names the file. "too large": the MemoryError
    of a model that this machine cannot hold. "the same": all that it says has the bits of the
    undamaged file's. "another model": predictions are finite and in order; without kernels
    (`serving`) they agree; saved and loaded again they have the same bits; and rows can be added.
    Then a model that holds its rows learns again: what became of that is added to `learned`.

    steps: those of STEPS to take, each with a random generator.
    """
    import triegp
    from triegp import serving

    outcome, model = "refused", None
    try:
        model = triegp.load(path)
    except triegp.ModelFileError as error:
        check_refusal(error, path)
    except MemoryError as error:
        if "the model needs about" not in str(error):
            raise
        outcome = "too large"
    try:
        served = serving.load(path)
    except triegp.ModelFileError as error:
        check_refusal(error, path)
        if model is not None:
            raise BrokenError("triegp.load takes it, serving.load does not") from error
        return outcome
    except MemoryError as error:
        if "the model needs about" not in str(error):
            raise
        return "too large"
    if served._stream.encoders[0].outside == "error":
        return "another model"  # it refuses the rows that it would be asked about
    answers = ask(served)
    if model is None:  # parameters that only `triegp.load` reads
        check_defined(answers, bool(served._stream.transforms))
        return outcome
    said = ask(model)
    same = all(map(same_bits, said, reference)) and len(said) == len(reference)
    if not same:
        check_defined(said, bool(model._stream.transforms))
        model.save(path.with_name("again"), training_data=model._stream.kept is not None)
        if not all(map(same_bits, ask(triegp.load(path.with_name("again"))), said)):
            raise BrokenError("it does not come back from a file of its own")
    scale = sum(np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in said[:2])
    for here, there in zip(said, answers, strict=True):
        if not np.allclose(here, there, rtol=AGREE, atol=AGREE * scale, equal_nan=True):
            raise BrokenError("predictions with and without kernels differ")
    if same or not model._stream.transforms:  # rows must lie in the domain of a transform
        add_rows(model)
    if model._stream.kept is not None:
        for step, draw in steps:
            learned.append(f"{step.__name__}: {refit(path, draw, step)}")
    return "the same" if same else "another model"


# Rows that a file's parameters do not allow: it would forget but holds no rows (`window`), it
# refuses what lies outside, or it measures weights in another unit.
TOLD = ("needs the training rows", "must lie inside the box", "sample_weight must be 0 or in")


def add_rows(model: Any) -> None:
    """Add two rows; a fit is not tested here."""
    rows = new_rows(model._stream.columns)[:2]
    n_targets = model._stream.mean.size
    y = np.tile(model._stream.mean, (2, 1))
    if model._stream.transforms:
        y = model.predict(rows).reshape(2, n_targets)
    y = y[:, 0] if model.one_dimensional_ else y
    model.set_params(refit=False, n_jobs=1, engine="auto", verbose=0)
    try:
        found = model.partial_fit(rows, y).predict(rows)
    except ValueError as error:
        if any(text in str(error) for text in TOLD):
            return
        raise
    if not np.isfinite(found).all():
        raise BrokenError("predictions are not finite after rows were added")


def check_refusal(error: Exception, path: Path) -> None:
    """Raise BrokenError unless an error is short, names the file, and is not of a kernel."""
    text = str(error)
    if isinstance(error.__cause__, IndexError) and str(error.__cause__) == OUT_OF_BOUNDS:
        raise BrokenError("a kernel reads beyond an array") from error
    if str(path) not in text or len(text) > LONGEST + len(str(path)) or "\n" in text:
        raise BrokenError(f"an error of {len(text)} letters: {text[:200]!r}")


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays are equal, NaN included."""
    return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b, equal_nan=True))


# The process that reads


def work(folder: Path) -> None:
    """Read cases from stdin, one per line, and write what became of them to stdout."""
    import triegp

    sources = {name: Path(path) for name, path in json.loads(sys.stdin.readline()).items()}
    prepare_warnings()
    references = {name: ask(triegp.load(path)) for name, path in sources.items()}
    for path in sources.values():
        examine_copy(path, folder)
    limit_memory()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        case, seed = json.loads(line)
        print(json.dumps(run_case(case, seed, sources, references, folder)), flush=True)


def prepare_warnings() -> None:
    """Warnings are errors, but for those that tell users about their rows."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)


def examine_copy(path: Path, folder: Path) -> None:
    """Compile all that the cases will call, before memory is limited; an undamaged file."""
    import triegp

    (folder / "case").write_bytes(path.read_bytes())
    steps = [(step, np.random.default_rng(1)) for step in STEPS]
    outcome = examine(folder / "case", ask(triegp.load(path)), [], steps)
    assert outcome == "the same", (path, outcome)


def limit_memory() -> None:
    """Limit the address space to what is in use and MEMORY more."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run_case(
    case: int,
    seed: int,
    sources: dict[str, Path],
    references: dict[str, list[Any]],
    folder: Path,
) -> dict[str, Any]:
    """Damage a file and examine it: source, mutation, outcome, and a traceback if it is broken."""
    draw = np.random.default_rng([seed, case])
    name, other = (str(one) for one in draw.choice(sorted(sources), 2))
    with_rows = sorted(one for one in sources if one in KINDS and KINDS[one][1])
    if with_rows and draw.random() < 0.4:
        name = str(draw.choice(with_rows))
    mutation, content = mutate(sources[name], sources[other], draw)
    path = folder / "case"
    path.write_bytes(content)
    found: dict[str, Any] = {"case": case, "source": name, "mutation": mutation, "learned": []}
    steps = [(STEPS[int(draw.integers(len(STEPS)))], draw)]
    began = time.monotonic()
    try:
        found["outcome"] = examine(path, references[name], found["learned"], steps)
        if mutation in OF_BYTES and found["outcome"] not in ("refused", "the same"):
            raise BrokenError("a file whose digest does not fit is read")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of the reader of safetensors is no Exception
        found["outcome"] = type(error).__name__
        found["detail"] = "\n".join(line[:300] for line in traceback.format_exc().splitlines())
    found["seconds"] = time.monotonic() - began
    return found


# The process that watches


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; infinite if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Reader:
    """A process that reads damaged files; it is started again after a crash."""

    def __init__(self, sources: dict[str, Path], folder: Path, checked: bool) -> None:
        self.sources, self.folder = sources, folder
        self.environment = dict(os.environ) | (CHECKED if checked else {})
        self.process: Any = None

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        command = [sys.executable, "-X", "faulthandler", "-m", "tools.break_files", "--worker"]
        self.process = subprocess.Popen(
            [*command, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.tell({name: str(path) for name, path in self.sources.items()})
        if self.hear(1800.0) != "ready":  # kernels that check are compiled first
            raise RuntimeError("the process that reads files did not start")

    def tell(self, message: Any) -> None:
        """Write one line to the process."""
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self, seconds: float) -> Any:
        """The next line of the process; None if it has ended, or worked so long without one."""
        began, worked = time.monotonic(), cpu_seconds(self.process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not selector.select(1.0):
                late = time.monotonic() - began > PATIENCE * seconds
                if late or cpu_seconds(self.process.pid) - worked > seconds:
                    return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def run(self, case: int, seed: int) -> dict[str, Any]:
        """What became of one case."""
        if self.process is None:
            self.start()
        self.tell([case, seed])
        found = self.hear(SECONDS)
        if found is not None:
            return dict(found)
        status = self.process.poll()
        self.stop()
        outcome = "endless" if status is None else f"ended by {status}"
        return {
            "case": case,
            "source": "?",
            "mutation": "?",
            "outcome": outcome,
            "learned": [],
            "seconds": SECONDS,
        }

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


def campaign(
    seed: int, cases: range, folder: Path, sources: dict[str, Path], *, checked: bool = False
) -> list[dict[str, Any]]:
    """Damage some of the sources and examine them: what `run_case` found, for every case.

    checked: kernels check every index, so that one beyond an array is seen.
    """
    reader = Reader(sources, folder, checked)
    found = []
    try:
        for case in cases:
            found.append(reader.run(case, seed))
            if found[-1]["outcome"] not in FINE:
                print(f"case {case}: {found[-1]['outcome']}", flush=True)
            if len(found) % 1000 == 0:
                print(f"{len(found)} of {len(cases)}", flush=True)
    finally:
        reader.stop()
    return found


def print_table(found: list[dict[str, Any]]) -> None:
    """Counts by mutation and outcome, as Markdown."""
    outcomes = sorted({one["outcome"] for one in found} | set(FINE))
    counts = collections.Counter((one["mutation"], one["outcome"]) for one in found)
    names = [name for name in (*MUTATIONS, "?") if any(counts[name, out] for out in outcomes)]
    print("\n| mutation | " + " | ".join(outcomes) + " |")
    print("|---|" + "---:|" * len(outcomes))
    for name in names:
        print(f"| {name} | " + " | ".join(f"{counts[name, out]:,}" for out in outcomes) + " |")
    sums = [sum(counts[name, out] for name in names) for out in outcomes]
    print("| all | " + " | ".join(f"{one:,}" for one in sums) + " |")
    print("\n| step | fitted | told |\n|---|---:|---:|")
    learned = collections.Counter(what for one in found for what in one["learned"])
    for step in STEPS:
        ends = (learned[f"{step.__name__}: {end}"] for end in ("fitted", "told"))
        print(f"| {step.__name__} | " + " | ".join(f"{count:,}" for count in ends) + " |")
    found = sorted(found, key=lambda one: float(one["seconds"]))
    last, middle = found[-1], found[len(found) // 2]
    print(f"\nmedian: {middle['seconds']:.4f} s, longest: {last['seconds']:.2f} s, ", end="")
    print(f"case {last['case']}, {last['mutation']} of {last['source']}")


def main() -> int:
    """Run a campaign; 1 if a file is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="damaged files (10000)")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--case", type=int, help="only this damage, with a traceback")
    parser.add_argument("--checked", action="store_true", help="kernels check every index")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker)
        return 0
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"break-files: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cases = (
            range(options.count) if options.case is None else range(options.case, options.case + 1)
        )
        sources = write_kinds(Path(folder)) | kept_files()
        found = campaign(seed, cases, Path(folder), sources, checked=options.checked)
    print_table(found)
    broken = [one for one in found if one["outcome"] not in FINE]
    for one in broken:
        print(f"\n{one['case']}: {one['outcome']} ({one['mutation']} of {one['source']})")
        print(one.get("detail", ""))
    if broken:
        print(f"break-files: {len(broken)} broken, with --seed {seed}, --case one of them")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
