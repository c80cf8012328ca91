"""Try to break models by threads and processes.

    python -m tools.break_runs --count 300             a new seed, which is printed
    python -m tools.break_runs --seed 7 --count 300    the same cases again
    python -m tools.break_runs --seed 7 --case 123     one of them, with its traceback

Cases are of four kinds, in turn. "same bits": one fit with several numbers of threads, in threads,
processes and with other numbers of BLAS threads. "readers": eight threads ask a model that another
thread changes. "writers": several threads add rows to one model. "forks": processes that are forked
while threads change models. Another process runs the cases, so that a crash or a deadlock is seen:
after 300 s a case ends with the stack of every thread. The exit status is 1 after any failure.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import json
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np
from tools.run_problems import QUESTIONS, Answer, Problem, ask_all, draw_problem, fit_and_ask

SECONDS = 300  # for one case, after which it counts as a deadlock
CHILD_SECONDS = 120  # for one forked process
N_READERS = 8
ROUNDING = 1e-9  # difference of answers that depends on when rows are inserted, of the largest
SOLVED = 1e-3  # the same for a sum of trees, whose solves begin with the solution before
SWITCHING = (5e-3, 1e-4, 1e-5)  # seconds after which Python lets another thread run
BLAS_THREADS = (1, 2, 8)


class BrokenError(Exception):
    """What threads and processes must not do."""


# The same bits


def check_same_bits(draw: np.random.Generator, routes: Sequence[str] = ()) -> str:
    """Fit one problem in several ways; all answers must have the same bits.

    routes: names of the ways, by default threads and four more.
    """
    problem = draw_problem(draw)
    expected = fit_and_ask(problem, 1)
    others = sorted(ROUTES.keys() - {"threads"})
    for name in routes or ["threads", *draw.choice(others, 4, replace=False).tolist()]:
        for k, found in enumerate(ROUTES[name](problem, draw)):
            differ = [key for key in expected if found.get(key) != expected[key]]
            if differ or found.keys() != expected.keys():
                raise BrokenError(f"{name}, {k}: other bits of {differ} ({problem.text})")
    return problem.text


def _jobs(draw: np.random.Generator) -> int:
    return int(draw.integers(2, 9))


def _by_threads(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
    """In this thread, with another number of threads."""
    return [fit_and_ask(problem, _jobs(draw))]


def _in_threads(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
    """In three threads at once, each with its own model."""
    jobs = [_jobs(draw) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        return [job.result() for job in [pool.submit(fit_and_ask, problem, k) for k in jobs]]


def _in_child(context: str) -> Callable[..., list[dict[str, str]]]:
    """In a process that is started in one of multiprocessing's ways."""

    def run(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
        pool = ProcessPoolExecutor(1, multiprocessing.get_context(context), _quiet)
        with pool:
            return [pool.submit(fit_and_ask, problem, _jobs(draw)).result()]

    return run


def _with_environment(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
    """In new processes with other numbers of BLAS threads."""
    n_threads, jobs = int(draw.choice(BLAS_THREADS)), _jobs(draw)
    return [_blas_pool(n_threads).submit(fit_and_ask, problem, jobs).result()]


@cache
def _blas_pool(n_threads: int) -> ProcessPoolExecutor:
    """A new process with so many BLAS threads, which stays for later cases."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(n_threads)))
    try:
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _quiet)
        pool.submit(os.getpid).result()
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return pool


def _with_blas_limit(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
    """In this thread, with another limit of BLAS threads."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(int(draw.choice(BLAS_THREADS)), user_api="blas"):
        return [fit_and_ask(problem, _jobs(draw))]


def _by_joblib(problem: Problem, draw: np.random.Generator) -> list[dict[str, str]]:
    """In a process of joblib's default backend, loky."""
    import joblib

    work = [joblib.delayed(_quietly)(problem, _jobs(draw))]
    return list(joblib.Parallel(n_jobs=2, backend="loky")([*work, *work]))


def _quietly(problem: Problem, n_jobs: int) -> dict[str, str]:
    _quiet()
    return fit_and_ask(problem, n_jobs)


def _quiet() -> None:
    """Ignore warnings: those about rows and short trainings are expected."""
    warnings.simplefilter("ignore")


ROUTES: dict[str, Callable[..., list[dict[str, str]]]] = {
    "n_jobs": _by_threads,
    "threads": _in_threads,
    "fork": _in_child("fork"),
    "spawn": _in_child("spawn"),
    "forkserver": _in_child("forkserver"),
    "joblib": _by_joblib,
    "BLAS by environment": _with_environment,
    "BLAS by limit": _with_blas_limit,
}


# States of a model


class Changes:
    """Changes of a model, and its answers after each of them, computed without threads."""

    def __init__(self, problem: Problem, draw: np.random.Generator) -> None:
        self.problem = problem
        self.model = problem.fit(n_jobs=int(draw.integers(1, 5)))
        self.changes = list(self._draw_changes(draw))
        serial = copy.deepcopy(self.model)
        self.legal = [ask_all(serial, problem.new)]
        for change in self.changes:
            change(serial)
            self.legal.append(ask_all(serial, problem.new))

    def _draw_changes(self, draw: np.random.Generator) -> Iterator[Callable[[Any], Any]]:
        mixture = self.problem.estimator == "BinaryTreeGPRegressor"
        for batch in self.problem.batches:
            yield lambda model, batch=batch: model.partial_fit(**batch)
            if mixture and draw.random() < 0.15:
                share = float(draw.uniform(0.5, 1.0))
                yield lambda model, share=share: model.forget(factor=share)
            elif mixture and draw.random() < 0.1:
                n_last = int(draw.integers(40, 60))
                yield lambda model, n_last=n_last: model.forget(keep_last=n_last)
            elif draw.random() < 0.1:
                yield lambda model: model.refresh()
            elif draw.random() < 0.08:
                yield lambda model: model.fit(**self.problem.first)

    def states_of(self, name: str, answer: Answer, states: range) -> tuple[list[int], bool]:
        """Those of the states that give an answer, and whether to the last bit."""
        n = _n_compared(self.problem, name)
        exact = [k for k in states if _agree(answer, self.legal[k][name], 0.0, n)]
        if exact:
            return exact, True
        near = _tolerance(self.problem)
        return [k for k in states if _agree(answer, self.legal[k][name], near, n)], False


def _tolerance(problem: Problem) -> float:
    return SOLVED if problem.estimator == "TrieGPRegressor" else ROUNDING


def _n_compared(problem: Problem, name: str) -> int | None:
    """How many arrays of an answer are compared, None for all; their shapes always are.

    Local noise of added rows depends on how they were divided when they were inserted. With it, the
    deviations of leave-one-out do, and the score; and the means if targets are transformed.
    """
    if name == "leave-one-out":
        return int(problem.parameters["target_transform"] == "identity")
    return 0 if name == "score" else None


def _agree(said: Answer, legal: Answer, tolerance: float, n_compared: int | None) -> bool:
    """Whether answers are equal, to so much of the largest entry."""
    if [np.shape(a) for a in said] != [np.shape(b) for b in legal]:
        return False
    for a, b in list(zip(said, legal, strict=True))[:n_compared]:
        if np.array_equal(a, b, equal_nan=True):
            continue
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0) if tolerance else 0.0
        if not np.allclose(a, b, rtol=0.0, atol=tolerance * largest, equal_nan=True):
            return False
    return True


# Readers and one writer


def check_readers(draw: np.random.Generator) -> str:
    """Eight threads ask one model, or two, while another thread of each changes it."""
    sequences = [
        Changes(draw_problem(draw, streamed=True), draw) for _ in range(int(draw.integers(1, 3)))
    ]
    watched = [Watched(one) for one in sequences]
    seeds = draw.integers(2**32, size=N_READERS).tolist()
    waits = [draw.integers(0, 6, len(one.changes)).tolist() for one in sequences]
    with _switching(draw):
        readers = [
            _Job(watched[k % len(watched)].read, np.random.default_rng(seed))
            for k, seed in enumerate(seeds)
        ]
        writers = [_Job(one.write, wait) for one, wait in zip(watched, waits, strict=True)]
        for job in (*writers, *readers):
            job.end()
    for one in watched:
        one.check_end()
    counts = [sum(one.n_asked for one in watched), sum(one.n_rounded for one in watched)]
    texts = " | ".join(one.problem.text for one in sequences)
    return f"{counts[0]} answers, {counts[1]} of them to rounding; {texts}"


class Watched:
    """A model that one thread changes, what is known about its state, and what readers saw."""

    def __init__(self, sequence: Changes) -> None:
        self.sequence = sequence
        self.model = copy.deepcopy(sequence.model)
        self.begun = self.done = 0  # changes
        self.answered = threading.Semaphore(0)
        self.ended = threading.Event()
        self.n_asked = self.n_rounded = 0
        self.counting = threading.Lock()

    def write(self, waits: list[int]) -> None:
        """Make all changes, each after some answers."""
        try:
            for change, n_answers in zip(self.sequence.changes, waits, strict=True):
                for _ in range(n_answers):
                    self.answered.acquire(timeout=30)
                self.begun += 1
                change(self.model)
                self.done += 1
        finally:
            self.ended.set()

    def read(self, draw: np.random.Generator) -> None:
        """Ask until all changes are made, and once more; check every answer."""
        names, latest = sorted(self.sequence.legal[0]), 0
        last = False
        while not last:
            last = self.ended.is_set()
            name = str(draw.choice(names))
            first = self.done
            said = QUESTIONS[name](self.model, self.sequence.problem.new)
            states = range(max(first, latest), self.begun + 1)
            self.answered.release()
            latest = self.check(name, said, states, f"{first} done, {latest} seen")

    def check(self, name: str, said: Answer, states: range, text: str) -> int:
        """The first of the states in which the model gives an answer; there has to be one."""
        found, exact = self.sequence.states_of(name, said, states)
        if not found:
            others, _ = self.sequence.states_of(name, said, range(len(self.sequence.legal)))
            raise BrokenError(
                f"{name}: an answer of states {others} in {states}, {text}; "
                f"{_distances(said, [self.sequence.legal[k][name] for k in states])} "
                f"({self.sequence.problem.text})"
            )
        with self.counting:
            self.n_asked += 1
            self.n_rounded += not exact
        return found[0]

    def check_end(self) -> None:
        """Ask everything when all changes are made."""
        end = len(self.sequence.changes)
        for name, said in ask_all(self.model, self.sequence.problem.new).items():
            self.check(name, said, range(end, end + 1), "at the end")


def _distances(said: Answer, legal: Sequence[Answer]) -> list[str]:
    """Largest differences from answers, or shapes if these differ; for people."""
    found = []
    for one in legal:
        if [np.shape(a) for a in said] != [np.shape(b) for b in one]:
            found.append(f"shapes {[np.shape(a) for a in said]}, {[np.shape(b) for b in one]}")
        else:
            found.append(
                ", ".join(f"{np.abs(a - b).max():.1e}" for a, b in zip(said, one, strict=True))
            )
    return found


class _Job(threading.Thread):
    """A thread whose exception is raised where it is waited for."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self.work, self.arguments = work, arguments
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.work(*self.arguments)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Wait for the end; raise what it raised."""
        self.join()
        if self.error is not None:
            raise self.error


@contextmanager
def _switching(draw: np.random.Generator) -> Iterator[None]:
    """Let threads take turns more or less often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(float(draw.choice(SWITCHING)))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# Several writers


def check_writers(draw: np.random.Generator) -> str:
    """Threads add rows to one model, and another may fit it anew: no row is lost.

    The order in which batches arrived is that of the targets. Without fits by `refresh`, the model
    then answers as one to which the batches were added in this order.
    """
    problem = draw_problem(draw, streamed=True)
    model = problem.fit(n_jobs=int(draw.integers(1, 5)))
    other = copy.deepcopy(model)
    shares = [problem.batches[k::3] for k in range(3)]
    fits = bool(draw.random() < 0.4)

    def add(batches: Sequence[dict[str, Any]]) -> None:
        for batch in batches:
            model.partial_fit(**batch)

    def ask() -> None:
        for _ in range(3):
            model.predict(problem.new, return_std=True)
            len(model.loo_targets())

    with _switching(draw):
        jobs = [_Job(add, share) for share in shares]
        jobs += [_Job(ask), _Job(model.refresh if fits else ask)]
        for job in jobs:
            job.end()
    rows = model.rows_
    n_first = len(problem.first["y"])
    arrived = _arrival(rows.y[n_first:], problem.batches)
    for share in shares:
        own = [k for k in arrived if any(problem.batches[k] is one for one in share)]
        if own != sorted(own):
            raise BrokenError(f"batches of one thread arrived as {own} ({problem.text})")
    if model.n_rows_ != rows.y.shape[0]:
        raise BrokenError(f"{model.n_rows_} rows, {rows.y.shape[0]} kept ({problem.text})")
    if fits:
        if not np.isfinite(model.predict(problem.new)).all():
            raise BrokenError(f"predictions are not finite ({problem.text})")
        return f"with a fit; {problem.text}"
    for k in arrived:
        other.partial_fit(**problem.batches[k])
    legal = ask_all(other, problem.new)
    for name, said in ask_all(model, problem.new).items():
        if not _agree(said, legal[name], _tolerance(problem), _n_compared(problem, name)):
            raise BrokenError(
                f"{name}: not that of batches in the order {arrived}; "
                f"{_distances(said, [legal[name]])} ({problem.text})"
            )
    return problem.text


def _arrival(y: Any, batches: Sequence[dict[str, Any]]) -> list[int]:
    """The order in which batches were added, by their targets; each must be there once, whole."""
    left, found, at = dict(enumerate(batches)), list[int](), 0
    while at < len(y):
        targets = {k: np.asarray(one["y"]).reshape(len(one["y"]), -1) for k, one in left.items()}
        fits = [k for k, own in targets.items() if np.array_equal(y[at : at + len(own)], own)]
        if not fits:
            raise BrokenError(f"rows from {at} on are those of no batch")
        found.append(fits[0])
        at += len(left.pop(fits[0])["y"])
    if left:
        raise BrokenError(f"batches {sorted(left)} are lost")
    return found


# Forks


def check_forks(draw: np.random.Generator) -> str:
    """Processes that are forked while threads change models, ask them and fit others."""
    sequences = [Changes(draw_problem(draw, streamed=True), draw) for _ in range(2)]
    watched = [Watched(one) for one in sequences]
    other = draw_problem(draw, streamed=True)
    expected = fit_and_ask(other, 1)
    delays = draw.exponential(0.05, 4)
    seeds = draw.integers(2**32, size=4).tolist()
    with _switching(draw):
        jobs = [_Job(one.write, [1] * len(one.sequence.changes)) for one in watched]
        for k, seed in enumerate(seeds):
            jobs.append(_Job(watched[k % 2].read, np.random.default_rng(seed)))
        jobs.append(_Job(_fit_until_ended, other, expected, watched))
        for delay in delays:
            time.sleep(delay)  # the moment is random: what threads are doing then is what it is
            _fork(watched, other, expected, draw)
        for job in jobs:
            job.end()
    for one in watched:
        one.check_end()
    return " | ".join(one.problem.text for one in sequences)


def _fit_until_ended(other: Problem, expected: dict[str, str], watched: list[Watched]) -> None:
    """Fit another model until the models have all their rows."""
    while True:
        if fit_and_ask(other, 3) != expected:
            raise BrokenError(f"a fit beside others has other bits ({other.text})")
        if all(one.ended.is_set() for one in watched):
            return


def _fork(
    watched: list[Watched], other: Problem, expected: dict[str, str], draw: np.random.Generator
) -> None:
    """Fork; the child uses every model, adds rows and fits another."""
    seed, first = int(draw.integers(2**32)), [one.done for one in watched]
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(CHILD_SECONDS)
            _use_in_child(watched, first, other, expected, np.random.default_rng(seed))
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise BrokenError(f"a forked process ended by {status}: {text or 'no answer'}")


def _use_in_child(
    watched: list[Watched],
    first: list[int],
    other: Problem,
    expected: dict[str, str],
    draw: np.random.Generator,
) -> None:
    for one, done in zip(watched, first, strict=True):
        one.counting = threading.Lock()
        names = draw.choice(sorted(one.sequence.legal[0]), 4).tolist()
        for name in ["moments", *names]:
            said = QUESTIONS[name](one.model, one.sequence.problem.new)
            states = range(done, one.begun + 1)
            one.check(name, said, states, f"in a forked process, {done} done")
        batch, before = one.sequence.problem.batches[0], one.model.n_rows_
        one.model.partial_fit(**batch).predict(one.sequence.problem.new)
        if one.model.n_rows_ != before + len(batch["y"]):
            raise BrokenError("rows that were added in a forked process are lost")
    if fit_and_ask(other, int(draw.integers(1, 5))) != expected:
        raise BrokenError(f"a fit in a forked process has other bits ({other.text})")


KINDS = {
    "same bits": check_same_bits,
    "readers": check_readers,
    "writers": check_writers,
    "forks": check_forks,
}


def kind_of(case: int) -> str:
    """The kind of a case; kinds take turns."""
    return list(KINDS)[case % len(KINDS)]


def run_case(seed: int, case: int) -> dict[str, Any]:
    """Run one case in this process: its kind, what it was, and a traceback if it failed."""
    found: dict[str, Any] = {"case": case, "kind": kind_of(case), "failure": ""}
    began = time.monotonic()
    faulthandler.register(signal.SIGALRM, chain=True)  # the stack of every thread, and the end
    signal.alarm(SECONDS)
    try:
        found["text"] = KINDS[kind_of(case)](np.random.default_rng([seed, case]))
    except Exception:
        found["failure"] = traceback.format_exc()
    finally:
        signal.alarm(0)
    return found | {"seconds": time.monotonic() - began}


# The process that watches


def campaign(seed: int, cases: Sequence[int]) -> list[dict[str, Any]]:
    """Run cases in another process, which is started again after a failure."""
    found: list[dict[str, Any]] = []
    while len(found) < len(cases):
        left = cases[len(found) :]
        command = [sys.executable, "-m", "tools.break_runs", "--seed", str(seed), "--inner"]
        process = subprocess.Popen(
            [*command, *map(str, left)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found.append(json.loads(line))
                _tell(found, cases)
                if found[-1]["failure"]:  # its threads may go on
                    break
            else:
                if process.wait() and len(found) < len(cases):
                    case = cases[len(found)]
                    failure = f"the process ended by {process.returncode}: see above"
                    found.append(
                        {
                            "case": case,
                            "kind": kind_of(case),
                            "failure": failure,
                            "seconds": SECONDS,
                        }
                    )
                    _tell(found, cases)
        finally:
            _end_session(process)
    return found


def _end_session(process: subprocess.Popen[str]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _tell(found: list[dict[str, Any]], cases: Sequence[int]) -> None:
    last = found[-1]
    if last["failure"]:
        print(f"case {last['case']}, {last['kind']}: {last['failure']}", flush=True)
    if len(found) % 20 == 0:
        print(f"{len(found)} of {len(cases)}", flush=True)


def print_table(found: list[dict[str, Any]]) -> None:
    """Counts by kind, as Markdown."""
    print("\n| kind | cases | failures | median seconds | longest |")
    print("|---|---:|---:|---:|---:|")
    for kind in KINDS:
        own = [one for one in found if one["kind"] == kind]
        if own:
            seconds = sorted(one["seconds"] for one in own)
            failures = sum(bool(one["failure"]) for one in own)
            middle = seconds[len(seconds) // 2]
            print(f"| {kind} | {len(own)} | {failures} | {middle:.1f} | {seconds[-1]:.1f} |")


def main() -> int:
    """Run cases; 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="cases, of four kinds in turn (300)")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--kind", choices=KINDS, help="only cases of this kind")
    parser.add_argument("--case", type=int, help="only this case, in this process")
    parser.add_argument("--inner", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _quiet()
    if options.inner is not None:
        for case in options.inner:
            print(json.dumps(run_case(options.seed, case)), flush=True)
        return 0
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"break-runs: seed {seed}", flush=True)
    if options.case is not None:
        last = run_case(seed, options.case)
        print(last["failure"] or last)
        return int(bool(last["failure"]))
    cases = [k for k in range(options.count) if options.kind in (None, kind_of(k))]
    found = campaign(seed, cases)
    print_table(found)
    said = collections.Counter(bool(one["failure"]) for one in found)
    print(f"\n{said[False]} cases passed, {said[True]} failed; seed {seed}")
    return int(said[True] > 0)


if __name__ == "__main__":
    sys.exit(main())
