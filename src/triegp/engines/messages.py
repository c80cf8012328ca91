"""The merge rule of two messages and its adjoint, as plain functions shared by all engines.

A message (m, s) is the evidence of the data on one side about the latent value: mean m and variance
s. s = inf is a message without information. Each engine compiles these functions with its own
compiler. They use no arrays and no library calls, so that any compiler can.
"""

from __future__ import annotations

INF = float("inf")


def merge(m1: float, s1: float, m2: float, s2: float) -> tuple[float, float, float, float]:
    """Merge two messages at the same depth: return the merged (m, s) and the shares (r1, r2).

    v = s1 + s2, r1 = s1/v, r2 = s2/v, m = m1 r2 + m2 r1, s = s1 s2/v. Both shares have full
    relative accuracy: the smaller is computed by division, the larger as one minus the smaller.
    Equal means stay as they are: with tiny noise, even a rounding error would be many deviations.
    """
    small = s1 if s1 <= s2 else s2
    share = small / (s1 + s2) if small < INF else 0.5
    rest = 1.0 - share
    r1 = share if s1 <= s2 else rest
    r2 = rest if s1 <= s2 else share
    return m1 if m1 == m2 else m1 * r2 + m2 * r1, small * rest, r1, r2


def merge_adjoint(
    e: float, v: float, r1: float, r2: float, gm: float, gs: float
) -> tuple[float, float, float, float]:
    """Adjoints (gm1, gs1, gm2, gs2) of two messages, given the adjoint (gm, gs) of the merged one.

    e = m1 - m2, v = s1 + s2. The node's own terms of the nll, (log(2 pi v) + e^2/v)/2, are
    included.
    """
    inv = 1.0 / v
    t = e * inv
    gv = 0.5 * (inv - t * t)
    gm1 = t + gm * r2
    gm2 = gm * r1 - t
    gs1 = gv - (gm * t) * r2 + (gs * r2) * r2
    gs2 = gv + (gm * t) * r1 + (gs * r1) * r1
    return gm1, gs1, gm2, gs2


def condition(m: float, s: float, v: float) -> tuple[float, float, float]:
    """Distribution of the latent value at the lower end of an edge, given that at the upper end.

    v is the variance of the edge and (m, s) the message at its lower end. Returns (gain, shift,
    var) such that f_low | f_up, data ~ N(gain f_up + shift, var). s = inf gives the prior. Requires
    s > 0.
    """
    if s == INF:
        return 1.0, 0.0, v
    total = s + v
    gain, share = s / total, v / total
    return gain, share * m, v * gain if v < s else s * share  # the smaller share may underflow


def top_separator(first: int, last: int) -> int:
    """The separator at which leaves first..last, which have identical keys, merge last.

    Among first + 1, ..., last, it is the number with the most trailing zeros in binary.
    """
    while last & (last - 1) > first:
        last &= last - 1
    return last
