"""scikit-learn's callbacks, where the installed version has them (1.9 on).

A fit is the root task, every member that is done one subtask of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from triegp.models.jobs import Stopwatch

Progress = Callable[[str, int, int], None]  # (stage, done, total)
Method = TypeVar("Method", bound=Callable[..., Any])

try:
    from sklearn import callback as _callback
except ImportError:
    _callback = None


class _NoCallbacks:
    """Stands in for the mixin where scikit-learn has none."""


HAS_CALLBACKS = _callback is not None
CallbackSupportMixin: Any = _callback.CallbackSupportMixin if HAS_CALLBACKS else _NoCallbacks


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator of that name; nothing where there is none."""
    return cast(Method, _callback.with_callbacks(method)) if HAS_CALLBACKS else method


class FitTasks:
    """Tells an estimator's callbacks what its fit does.

    Attributes
    ----------
    stopped : bool
        Whether a callback asked to end training.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, n_members: int) -> None:
        self._estimator, self._facts = estimator, {"X": X, "y": y}
        self.stopped = False
        self._root: Any = None
        if HAS_CALLBACKS:
            self._root = estimator._init_callback_context(max_subtasks=n_members)
            self._root.call_on_fit_task_begin(estimator=estimator, **self._facts)

    def follow(self, show: Progress, watch: Stopwatch) -> Progress:
        """Show progress, and tell the callbacks of every member that is fitted."""
        told = 0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal told
            show(stage, done, total)
            while stage == "fits" and told < done:
                told += 1
                if self._tell():
                    self.stopped = True
                    watch.halt()

        return progress

    def end(self) -> None:
        """Tell that the fit is done; the estimator is fitted by now."""
        if self._root is not None:
            # A copy of the estimator needs nothing more to be a fitted one.
            self._root.call_on_fit_task_end(
                estimator=self._estimator, reconstruction_attributes={}, **self._facts
            )

    def _tell(self) -> bool:
        if self._root is None:
            return False
        task = self._root.subcontext(task_name="member")
        task.call_on_fit_task_begin(estimator=self._estimator, **self._facts)
        return bool(task.call_on_fit_task_end(estimator=self._estimator, **self._facts))
