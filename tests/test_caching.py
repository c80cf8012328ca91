"""Attributes that are computed on first use."""

import threading
from dataclasses import dataclass

from triegp.caching import cached_property

WAIT = 60  # seconds until a thread counts as stuck


@dataclass(frozen=True)
class Owner:
    compute: object

    @cached_property
    def value(self):
        """What it computes."""
        return self.compute()


def test_a_value_is_computed_once_and_kept():
    calls = []
    one = Owner(lambda: calls.append(1) or len(calls))
    assert (one.value, one.value) == (1, 1)
    assert vars(one)["value"] == 1
    assert Owner.value.__doc__ == "What it computes."


def test_instances_do_not_wait_for_each_other():
    begun, go_on = threading.Event(), threading.Event()
    slow = Owner(lambda: begun.set() or go_on.wait(WAIT))
    thread = threading.Thread(target=lambda: slow.value, daemon=True)
    thread.start()
    assert begun.wait(WAIT)
    other = threading.Thread(target=lambda: Owner(lambda: 2).value, daemon=True)
    other.start()
    other.join(WAIT)
    assert not other.is_alive()
    go_on.set()
    thread.join(WAIT)
    assert slow.value is True


def test_threads_that_ask_at_once_get_the_same_value():
    together = threading.Barrier(2, timeout=WAIT)
    one = Owner(lambda: (together.wait(), object()))
    found = []
    threads = [threading.Thread(target=lambda: found.append(one.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert found[0] is found[1]
