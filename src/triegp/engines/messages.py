"""The merge rule of two messages and its adjoint: plain functions, written once, for every engine.

A message (m, s) says "the data below put the latent value here at m, with variance s"; s = inf
says nothing. Each engine compiles these functions with its own compiler. They hold no
arrays and no library calls, so that any of them can.
"""

from __future__ import annotations

INF = float("inf")


def merge(m1: float, s1: float, m2: float, s2: float) -> tuple[float, float, float, float]:
    """Merge two messages that meet at one depth: return the merged (m, s) and the shares (r1, r2).

    r1 = s1/v and r2 = s2/v with v = s1 + s2, each to full relative accuracy: the smaller by
    division, the larger as one minus it. m = m1 r2 + m2 r1, s = s1 s2/v.
    """
    small = s1 if s1 <= s2 else s2
    share = small / (s1 + s2) if small < INF else 0.5
    rest = 1.0 - share
    r1 = share if s1 <= s2 else rest
    r2 = rest if s1 <= s2 else share
    return m1 * r2 + m2 * r1, small * rest, r1, r2


def merge_adjoint(
    e: float, v: float, r1: float, r2: float, gm: float, gs: float
) -> tuple[float, float, float, float]:
    """Adjoints (gm1, gs1, gm2, gs2) of the children, given that of the merged message.

    e = m1 - m2, v = s1 + s2. The node's own terms (log(2 pi v) + e^2/v)/2 are included.
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
    """The latent value at the lower end of an edge of variance v, given the one at the upper end.

    With (m, s) the message at the lower end: f_low | f_up, data ~ N(gain f_up + shift, var).
    Return (gain, shift, var); s = inf is the prior, s > 0.
    """
    if s == INF:
        return 1.0, 0.0, v
    total = s + v
    gain = s / total
    return gain, (v / total) * m, v * gain


def top_separator(first: int, last: int) -> int:
    """Where rows first..last with identical keys part last, as a separator.

    Of first + 1, ..., last it is the number whose binary digits end in the most zeros.
    """
    while last & (last - 1) > first:
        last &= last - 1
    return last
