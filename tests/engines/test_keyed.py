"""Keyed random numbers: normal, independent, and a function of seed and name alone."""

import numpy as np
import pytest
from scipy import stats

from triegp.engines import keyed


def names(n, start=0):
    return np.arange(start, start + n, dtype=np.uint64)


def test_normals_are_standard_normal():
    drawn = keyed.normals(names(5), names(200_000), 2).ravel()
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        values = drawn**power
        assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(values.size)


@pytest.mark.parametrize("at", [0.2, 2.0, 3.0, keyed.EDGE, 4.2])
def test_tails_have_their_share(at):
    n = 4_000_000
    drawn = np.abs(keyed.normals(names(4, 9), names(n // 4), 2)).ravel()
    share = 2.0 * stats.norm.sf(at)
    assert abs(np.mean(drawn > at) - share) < 4.5 * np.sqrt(share * (1 - share) / n)


def test_layers_have_the_same_area():
    x, height = keyed.ENDS, keyed.HEIGHTS
    tail = np.sqrt(2 * np.pi) * stats.norm.sf(keyed.EDGE)
    area = x[1:-1] * (height[2:] - height[1:-1])
    np.testing.assert_allclose(area, keyed.EDGE * height[1] + tail, rtol=1e-9)


def test_neighbouring_names_and_seeds_are_independent():
    drawn = keyed.normals(names(40), names(50_000), 2)
    for matrix in (np.corrcoef(drawn.T), np.corrcoef(drawn[:, :2].reshape(-1, 50).T)):
        off = matrix[np.triu_indices_from(matrix, 1)]
        n = 50_000 if matrix.shape[0] == 40 else 2_000
        assert np.abs(off).max() < 5.0 / np.sqrt(n)
    pairs = drawn[1:] * drawn[:-1]
    assert abs(pairs.mean()) < 4.5 / np.sqrt(pairs.size)


def test_normals_do_not_depend_on_what_is_asked_together():
    whole = keyed.normals(names(7), names(40_000), 2)
    np.testing.assert_array_equal(keyed.normals(names(7), names(40_000), 1), whole)
    some = keyed.normals(names(2, 3), names(9, 20_000), 1)
    np.testing.assert_array_equal(some, whole[20_000:20_009, 3:5])


def test_streams_differ_by_tag_and_number():
    seeds = names(1_000)
    streams = [keyed.derive(seeds, tag, number) for tag in (1, 2, 3) for number in (0, 1, 2)]
    assert np.unique(np.concatenate(streams)).size == 9_000
    drawn = np.stack([keyed.normals(one, names(1), 1)[0] for one in streams])
    off = np.corrcoef(drawn)[np.triu_indices(9, 1)]
    assert np.abs(off).max() < 4.5 / np.sqrt(1_000)


def test_uniforms_are_uniform():
    drawn = keyed.uniforms(keyed.derive(names(100_000), 1))
    assert 0.0 < drawn.min() < drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3


def test_known_values_never_change():
    """What a seed means is part of the interface: pickled draws go on."""
    drawn = keyed.normals(np.array([1], np.uint64), names(3), 1)[:, 0]
    np.testing.assert_allclose(drawn, KNOWN, rtol=1e-14)


KNOWN = [1.3842775064723163, 0.9082286680950021, 0.05806596488894619]
