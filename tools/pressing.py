"""Ctrl-C at an exact place of a program: after so many instructions of some files.

A trace function sees every instruction of these files. At the chosen one it ends the tracing, and
makes Python believe that SIGINT has come, by PyErr_SetInterrupt. The handler then runs at the next
place where Python looks for signals, which is where a real one could have been noticed. A
KeyboardInterrupt that a trace function raises would also come where no signal is ever noticed.

Python 3.11 and 3.12: from 3.13 on, trace functions are not told about every instruction.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

_interrupt = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyErr_SetInterrupt", ctypes.pythonapi))


class _Key:
    """What is pressed when it dies."""


class Presser:
    """Counts instructions of some files in the main thread, and presses Ctrl-C at one of them.

    Parameters
    ----------
    files : sequence of str
        Parts of the names of files whose instructions count.
    at : int, default=0
        Number of the instruction, from 1 on, at which to press; 0 to count only.
    functions : sequence of str, optional
        Names of the functions that count; all by default.

    Attributes
    ----------
    n_seen : int
        Instructions so far.
    place : str
        Where it pressed: file, line and function; empty if it has not.
    """

    def __init__(self, files: Sequence[str], at: int = 0, functions: Sequence[str] = ()) -> None:
        self.files, self.at, self.functions = tuple(files), at, frozenset(functions)
        self.n_seen = 0
        self.place = ""
        self._known: dict[Any, bool] = {}
        self._held: Any = None

    def run(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the main thread and watch it."""
        assert threading.current_thread() is threading.main_thread()
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it in `settrace`
        try:
            sys.settrace(self._enter)
            return work()
        finally:
            sys.settrace(before)

    def _counts(self, code: Any) -> bool:
        if code not in self._known:
            named = not self.functions or code.co_name in self.functions
            self._known[code] = named and any(part in code.co_filename for part in self.files)
        return self._known[code]

    def _enter(self, frame: Any, event: str, arg: Any) -> Any:
        if not self._counts(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: Any, event: str, arg: Any) -> Any:
        if event != "opcode":
            return self._step
        self.n_seen += 1
        if self.n_seen == self.at:
            code = frame.f_code
            name = "/".join(code.co_filename.split("/")[-2:])
            self.place = f"{name}:{frame.f_lineno} {code.co_name}"
            key = _Key()
            self._held = weakref.ref(key, _interrupt)
            sys.settrace(None)
            del key  # from here on nothing is called: the signal would be noticed here
            return None
        return self._step
