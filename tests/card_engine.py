"""An engine whose arrays numpy can't get at, as on a card."""

from device_arrays import DeviceArray
from triegp.engines import Candidate, CpuEngine


class CardEngine(CpuEngine):
    """Holds arrays where numpy can't get at them, and works on them on the CPU."""

    on_host = False

    def hold(self, array):
        return DeviceArray(array)

    def evaluate_many(self, candidates, dtype, gradient, rows=False):
        host = [Candidate(*(getattr(a, "_array", a) for a in one)) for one in candidates]
        found = super().evaluate_many(host, dtype, gradient, rows)
        return [
            one._replace(by_var=None if one.by_var is None else self.hold(one.by_var))
            for one in found
        ]
