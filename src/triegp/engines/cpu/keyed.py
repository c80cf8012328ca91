"""Random numbers keyed by what they belong to: a pure function of (seed, name), in any order.

A name is a 64-bit hash, here of the prefix of a key. SplitMix64's finaliser (Stafford's variant 13)
mixes seed and name to 64 bits, and the ziggurat method of Marsaglia and Tsang turns these into a
standard normal. Two of N names have the same hash with probability N^2 / 2^65.
"""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Floats, Words

N_LAYERS = 256
EDGE = 3.6541528853610088  # where the tail of the lowest layer begins
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
NAMED = np.uint64(0xD1342543DE82EF95)
UNIT = 2.0**-53
LAYER, SIGN, HIGH, ONE = np.uint64(255), np.uint64(256), np.uint64(11), np.uint64(1)


def _layers() -> tuple[Floats, Floats]:
    """Right ends x of the layers, from the lowest up, and exp(-x^2 / 2) there, both (257,).

    All layers have the area of the tail beyond EDGE plus the rectangle below it; entry 0 is the end
    of a rectangle of that area.
    """
    x = np.zeros(N_LAYERS + 1)
    height = np.exp(-0.5 * EDGE * EDGE)
    area = 4.92867323399e-3
    x[0], x[1] = area / height, EDGE
    for k in range(2, N_LAYERS):
        x[k] = np.sqrt(-2.0 * np.log(area / x[k - 1] + np.exp(-0.5 * x[k - 1] ** 2)))
    return x, np.exp(-0.5 * x * x)


ENDS, HEIGHTS = _layers()
WIDTHS = ENDS * UNIT


@jit
def mix(word):
    """A bijection of 64-bit words whose every output bit depends on every input bit."""
    word = (word ^ (word >> np.uint64(30))) * FIRST
    word = (word ^ (word >> np.uint64(27))) * SECOND
    return word ^ (word >> np.uint64(31))


@jit
def normal(word):
    """A standard normal from 64 random bits; one in 60 mixes further bits from these."""
    layer = word & LAYER
    x = np.float64(word >> HIGH) * WIDTHS[layer]
    if x >= ENDS[layer + ONE]:
        x = outside_layer(word)
    return -x if word & SIGN else x


@jit
def outside_layer(word):
    """Size of the draw if its first bits fall outside of what lies below the density."""
    while True:
        layer = word & LAYER
        x = np.float64(word >> HIGH) * WIDTHS[layer]
        if x < ENDS[layer + ONE]:
            return x
        word = mix(word + GOLDEN)
        share = (np.float64(word >> HIGH) + 0.5) * UNIT
        if layer == 0:  # the tail, by Marsaglia's method
            while True:
                word = mix(word + GOLDEN)
                other = (np.float64(word >> HIGH) + 0.5) * UNIT
                far = -np.log(share) / EDGE
                if -2.0 * np.log(other) > far * far:
                    return EDGE + far
                word = mix(word + GOLDEN)
                share = (np.float64(word >> HIGH) + 0.5) * UNIT
        low, high = HEIGHTS[layer], HEIGHTS[layer + ONE]
        if low + share * (high - low) < np.exp(-0.5 * x * x):
            return x
        word = mix(word + GOLDEN)


@jit
def fill_normals(seeds, names, lo, hi, out):
    """out[i, d] = the normal of seed d and name i, for names lo..hi."""
    for i in range(lo, hi):
        name = mix(names[i] + NAMED)
        for d in range(seeds.size):
            out[i, d] = normal(mix(name + seeds[d]))


def derive(seeds: Words, tag: int, number: int = 0) -> Words:
    """Seeds of another stream, uint64 (k,): a function of each seed, a tag and a number.

    Streams of different tags or numbers are independent.
    """
    with np.errstate(over="ignore"):
        step = _mixed(_word(tag) * NAMED + _mixed(_word(number) + GOLDEN))
        return _mixed(np.asarray(seeds, np.uint64) + step)


def uniforms(seeds: Words) -> Floats:
    """One number in (0, 1) of each seed, (k,)."""
    return np.asarray(((_mixed(seeds) >> np.uint64(11)).astype(np.float64) + 0.5) * UNIT)


def normals(seeds: Words, names: Words, n_threads: int) -> Floats:
    """Standard normals of every name and seed, float64 (m, k). O(m k).

    seeds: uint64 (k,); names: uint64 (m,).
    """
    out = np.empty((names.size, seeds.size))
    names = np.ascontiguousarray(names, np.uint64)
    run_each(lambda b: fill_normals(seeds, names, *b, out), thread_blocks(names.size), n_threads)
    return out


def _word(number: int) -> Words:
    return np.array([number], np.uint64)


def _mixed(words: Words) -> Words:
    """`mix` of an array."""
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return np.asarray(words ^ (words >> np.uint64(31)))
