"""New rows in an overlay against dense algebra and against inserting them, in any batches."""

import threading
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import oracle
from problems import make_problem, problems, take
from tolerances import VALUE
from triegp.engines import overlay, paths
from triegp.tree import build_trie, condition, insert, predict


class Growing:
    """Two targets on one trie, of the first rows of a problem; the second is the first, doubled."""

    def __init__(self, problem, n_first, weight=None):
        self.problem, self.weight = problem, weight
        self.first = self.conditioned(1.0, slice(0, n_first))
        double = self.conditioned(2.0, slice(0, n_first))
        self.tries = overlay.hold_tries(
            [self.first.trie.links],
            [self.first.keys],
            [problem.order.levels],
            [self.first.trie.row_idx],
            [self.first.rows.weight],
            [[self.first.inside, double.inside]],
        )
        self.keys = paths.key_bits([self.first.trie.bits])
        self.empty = overlay.new_overlay(self.tries)

    def conditioned(self, factor, rows):
        problem, weight = self.problem, self.weight
        codes = take(problem.codes, rows)
        return condition(
            build_trie(codes, problem.order),
            codes,
            problem.order,
            factor * problem.y[rows],
            problem.noise,
            known_noise=problem.known[rows],
            sample_weight=None if weight is None else weight[rows],
        )

    def read(self, codes):
        return paths.read_keys(self.keys, [codes.packed])

    def append(self, over, rows):
        y, known = self.problem.y[rows], self.problem.known[rows]
        weight = np.ones(y.size) if self.weight is None else self.weight[rows]
        with np.errstate(divide="ignore"):
            variance = (self.first.new_noise + known) / weight
        keys = self.read(take(self.problem.codes, rows))
        both = np.stack([y, 2.0 * y], axis=1)
        tail = (np.broadcast_to(variance[None, :, None], (1, y.size, 2)).copy(), weight <= 1.0, 2)
        return overlay.append_rows(self.tries, over, keys, both, *tail)

    def predict(self, over, codes, column=0, apart=False):
        return [
            part[0]
            for part in overlay.predict_rows(
                self.tries, over, self.read(codes), column, apart, n_threads=1
            )
        ]


def cut(problem, data):
    """Where the first rows end and the batches after them begin."""
    n = problem.y.size
    n_first = data.draw(st.integers(1, n))
    return np.r_[sorted({n_first, n} | data.draw(st.sets(st.integers(n_first, n))))]


@given(problems, st.data())
def test_any_batches_give_the_dense_posterior(problem, data):
    bounds = cut(problem, data)
    growing = Growing(problem, bounds[0])
    over = growing.empty
    for first, last in pairwise(bounds):
        over = growing.append(over, slice(first, last))
        growing.predict(over, problem.new)
    assert over.n_rows == problem.y.size - bounds[0]
    for codes, bits in ((problem.new, problem.new_bits), (problem.codes, problem.bits)):
        mean, covariance = oracle.posterior(
            problem.kernel(),
            problem.row_noise(True),
            problem.kernel(problem.bits, bits),
            problem.kernel(bits),
            problem.y,
        )
        for column in (0, 1):
            got_mean, got_var, _ = growing.predict(over, codes, column)
            np.testing.assert_allclose(got_mean, (1 + column) * mean, **VALUE)
            np.testing.assert_allclose(got_var, np.diag(covariance), **VALUE)


@given(problems, st.booleans(), st.data())
def test_any_batches_give_what_inserting_them_gives(problem, apart, data):
    """With weights, zeros among them, and rows whose runs count as noise."""
    bounds = cut(problem, data)
    growing = Growing(problem, bounds[0], problem.weight)
    over, inserted = growing.empty, growing.first
    for first, last in pairwise(bounds):
        over = growing.append(over, slice(first, last))
        inserted = insert(
            inserted,
            take(problem.codes, slice(first, last)),
            problem.y[first:last],
            known_noise=problem.known[first:last],
            sample_weight=problem.weight[first:last],
        )
    for codes in (problem.new, problem.codes):
        mean, var, run = growing.predict(over, codes, apart=apart)
        expected = predict(inserted, codes, apart=apart)
        np.testing.assert_allclose(mean, expected.mean, **VALUE)
        np.testing.assert_allclose(var, expected.var, **VALUE)
        if apart:
            np.testing.assert_allclose(run, expected.run, **VALUE)


def test_distinct_keys_give_the_same_bits_as_inserting_them():
    problem = make_problem(0, n=400, precision=(20, 20, 30))
    growing = Growing(problem, 200)
    over, posterior = growing.empty, growing.conditioned(1.0, slice(None))
    for i in range(200, 400):
        over = growing.append(over, slice(i, i + 1))
    expected = predict(posterior, problem.new)
    mean, var, _ = growing.predict(over, problem.new)
    np.testing.assert_array_equal(mean, expected.mean)
    np.testing.assert_array_equal(var, expected.var)


def test_an_overlay_stays_as_it_was_when_rows_are_added():
    problem = make_problem(1, n=300, precision=(6, 6))
    growing = Growing(problem, 100)
    early = growing.append(growing.empty, slice(100, 150))
    before = growing.predict(early, problem.codes)
    late = growing.append(early, slice(150, 300))  # longer arrays, too
    np.testing.assert_array_equal(growing.predict(early, problem.codes), before)
    assert not np.array_equal(growing.predict(late, problem.codes), before)


def test_two_who_add_rows_to_one_overlay_do_not_meet():
    problem = make_problem(2, n=60, precision=(6, 6))
    growing = Growing(problem, 20)
    shared = growing.append(growing.empty, slice(20, 40))
    one = growing.append(shared, slice(40, 50))
    two = growing.append(shared, slice(50, 60))
    for over, rows in ((one, np.r_[:50]), (two, np.r_[:40, 50:60])):
        expected = predict(growing.conditioned(1.0, rows), problem.new)
        np.testing.assert_allclose(growing.predict(over, problem.new)[0], expected.mean, **VALUE)


def test_readers_see_the_rows_of_their_record_while_others_are_added():
    problem = make_problem(3, n=400, precision=(8, 8))
    growing = Growing(problem, 100)
    over, ended, wrong = growing.append(growing.empty, slice(100, 120)), threading.Event(), []
    expected = growing.predict(over, problem.codes)

    def read():
        while not ended.is_set():
            if not np.array_equal(growing.predict(over, problem.codes), expected):
                wrong.append(True)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    latest = over
    for i in range(120, 400):
        latest = growing.append(latest, slice(i, i + 1))
    ended.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert latest.n_rows == 300
