"""One tree by its definition, with as many digits as a case needs, and how large errors may be.

The same formulas run on arrays of float64 (`oracle.py`, numpy's LAPACK) and on arrays of `Decimal`,
whose digits exceed twice the logarithm of the condition number: then the reference has no error
that float64 could show.

Every value comes with what its error is measured by (`Value`). The error of a number is the
smallest d such that |found - value| <= d first + d^2 second, where `first` and `second` are the
sums of the absolute terms that change, to first and second order, if every y changes by d of
itself. A sum of squares of small differences of large targets is ill-conditioned in this sense,
and nothing else is: the condition number of K + noise does not enter.

In float64 the reference itself loses the condition number. Then `first` is the largest of its
array, and the error is divided by the condition number.

Messages of float32 lose more than float64 does at any condition number of these cases: errors are
not divided by it. Numbers below 2^-126 keep fewer digits, and are measured by that bound.
"""

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from itertools import pairwise
from math import log10

import numpy as np

import oracle

LOGARITHMS = Context(prec=40)
TINY = 1e-305  # float64 keeps fewer digits of numbers below
GUARD = 30  # digits
TINY_SINGLE = 2.0**-126  # the same for float32


@dataclass(frozen=True)
class Value:
    """A reference with the measures of its error; arrays of one shape."""

    value: np.ndarray
    first: np.ndarray
    second: np.ndarray | None = None


class Floats:
    """Arithmetic in float64."""

    exact = False

    def of(self, array):
        return np.asarray(array, np.float64)

    def inverse(self, matrix):
        """Inverse, and the logarithms of numbers whose product is the determinant."""
        lower = np.linalg.cholesky(matrix)
        return np.linalg.inv(matrix), 2.0 * np.log(np.diag(lower))

    def log(self, array):
        return np.log(array)


class Digits:
    """Arithmetic in decimal numbers, of the digits of the context."""

    exact = True

    def of(self, array):
        array = np.asarray(array, np.float64)
        out = np.empty(array.shape, object)
        out.ravel()[:] = [Decimal(float(v)) for v in array.ravel()]
        return out

    def inverse(self, matrix):
        """By Gauss and Jordan, whose pivots are positive for a positive definite matrix."""
        out, logs = matrix.copy(), []
        for k in range(len(out)):
            pivot, row, column = out[k, k], out[k].copy(), out[:, k].copy()
            logs.append(LOGARITHMS.ln(pivot))
            row = row / pivot
            out = out - column[:, None] * row
            out[k], out[:, k], out[k, k] = row, -column / pivot, 1 / pivot
        return out, np.array(logs, object)

    def log(self, array):
        return np.array([LOGARITHMS.ln(v) for v in array], object)


def digits_of(case):
    """Digits that leave `GUARD` after all cancellation, and the logarithm of the condition."""
    variance = case.variance[case.counts]
    top = float(case.order.scale) + float(variance.max())
    spread = log10(top) + log10(case.n) - log10(float(variance.min()))
    return int(2 * spread) + 2 * GUARD, spread


class Reference:
    """What dense algebra says of a case."""

    def __init__(self, case, exact):
        self.case, self.arithmetic = case, Digits() if exact else Floats()
        of = self.arithmetic.of
        digits, self.spread = digits_of(case)
        self.context = Context(prec=digits, Emax=10**9, Emin=-(10**9))
        with localcontext(self.context):
            levels = of(case.order.levels)
            self.cumulative = levels[0] - levels
            self.prior = self.cumulative[-1]
            self.rows = np.flatnonzero(case.counts)
            self.y = of(case.y)
            self.weight, self.variance = of(case.weights), of(case.row_noise)
            self.message = self.variance[self.rows] / self.weight[self.rows]
            self.lcp = oracle.shared_prefix(case.all_bits, case.all_bits)
            self.K = self.cumulative[self.lcp]
            self.inverse, self.logs = self._invert(self.rows, self.message)
            self.alpha = self.inverse @ self.y[self.rows]
        single = case.dtype == np.float32
        self.tiny = case.n * TINY_SINGLE if single else TINY
        # A variance below the smallest of float32 is a share of y below this one.
        self.least_gain = TINY_SINGLE / float(min(self.message)) if single else 0.0
        if exact or single:
            self.condition = 1.0
        else:
            C = self.K[np.ix_(self.rows, self.rows)] + np.diag(self.message)
            norms = np.abs(C).sum(axis=0).max() * np.abs(self.inverse).sum(axis=0).max()
            self.condition = max(float(norms), 1.0)

    def _invert(self, rows, variance):
        covariance = self.K[np.ix_(rows, rows)].copy()
        covariance[np.diag_indices(len(rows))] += variance
        return self.arithmetic.inverse(covariance)

    def _value(self, value, first, second=None, least=None):
        """A Value whose measures do not vanish; least: what counts as the size of the array."""
        of = self.arithmetic.of
        value, first = np.asarray(value), np.asarray(first)
        size = max(first.max() if first.size else of(0.0)[()], of(0.0)[()])
        if least is not None:
            size = max(size, least)
        if not self.arithmetic.exact:
            return Value(value, np.full(first.shape, size + self.tiny), second)
        share = Decimal(10) ** int(-min(GUARD + self.spread, 300.0))
        first = np.asarray(np.maximum(first, size * share + Decimal(self.tiny)))
        return Value(value, first, second)

    def errors(self, found, reference):
        """The largest error of an array, as the module says; inf if one is not a number."""
        found = np.asarray(found, np.float64)
        if found.shape != reference.value.shape or np.isnan(found).any():
            return np.inf
        second = np.zeros(found.shape) if reference.second is None else reference.second
        parts = [np.ravel(part) for part in (found, reference.value, reference.first, second)]
        inf = np.isinf(parts[0])
        for a, b in zip(parts[0][inf], parts[1][inf], strict=True):
            if not (float(abs(b)) > 1e300 and (b > 0) == (a > 0)):
                return np.inf
        a, b, first, more = (part[~inf] for part in parts)
        with localcontext(self.context), np.errstate(divide="ignore", over="ignore"):
            apart = np.abs(self.arithmetic.of(a) - b)
            errors = (apart / first).astype(np.float64)
            counts = np.flatnonzero((errors > 1e-16) & (more > 0))
            roots = np.sqrt((apart[counts] / more[counts]).astype(np.float64))
            errors[counts] = np.minimum(errors[counts], roots)
        return float(errors.max(initial=0.0)) / self.condition

    # Values

    def nll(self):
        with localcontext(self.context):
            of, rows = self.arithmetic.of, self.rows
            y, c = self.y[rows], self.weight[rows]
            own = self.arithmetic.log(self.variance[rows])
            two_pi = of(np.log(2 * np.pi))[()]
            one, half = of(1.0)[()], of(0.5)[()]
            logs = self.logs + two_pi
            extra = (c - one) * (two_pi + own) + self.arithmetic.log(c)
            value = half * (y @ self.alpha + logs.sum() + extra.sum())
            first = half * (np.abs(logs).sum() + np.abs(extra).sum() + of(float(len(y)))[()])
            first = first + np.abs(y) @ np.abs(self.alpha)
            second = np.abs(y) @ np.abs(self.inverse) @ np.abs(y)
            return self._value(value, first, np.asarray(second))

    def log_det(self):
        with localcontext(self.context):
            count = self.arithmetic.of(float(len(self.rows)))[()]
            return self._value(self.logs.sum(), np.abs(self.logs).sum() + count)

    def solve(self, x):
        """(K + noise)^-1 x, 0 where a row does not count; by_target for x = y."""
        with localcontext(self.context):
            x = self.arithmetic.of(x)[self.rows]
            return self._value(self._fill(self.inverse @ x), self._fill(self._force(x)))

    def _force(self, x):
        """Size of the entries of (K + noise)^-1 x, by their terms and by their deviations.

        An entry has variance (K + noise)^-1_ii if x has covariance K + noise.
        """
        deviations = np.sqrt(np.diag(self.inverse) * (x @ self.inverse @ x))
        return np.abs(self.inverse) @ np.abs(x) + deviations

    def _fill(self, values):
        out = self.arithmetic.of(np.zeros(self.case.n))
        out[self.rows] = values
        return out

    def inverse_diagonal(self):
        with localcontext(self.context):
            diagonal = self._fill(np.diag(self.inverse).copy())
            return self._value(diagonal, diagonal)

    def whitened(self, root):
        """T'T for T = root (n, n): the inverse, measured by |T|'|T|."""
        with localcontext(self.context):
            value = self.arithmetic.of(np.zeros((self.case.n, self.case.n)))
            value[np.ix_(self.rows, self.rows)] = self.inverse
            size = np.abs(root)
            return self._value(value, self.arithmetic.of(size.T @ size))

    def row_noise_gradient(self):
        """By the noise of each row, whose terms are squares of forces, and by the common noise."""
        with localcontext(self.context):
            of, rows = self.arithmetic.of, self.rows
            one, half = of(1.0)[()], of(0.5)[()]
            c, noise = self.weight[rows], self.variance[rows]
            diagonal, force = np.diag(self.inverse), self._force(self.y[rows])
            own = half * (c - one) / noise
            value = half * (diagonal - self.alpha * self.alpha) / c + own
            first = half * (diagonal + force * force) / c + np.abs(own)
            total = half * diagonal / c + np.abs(self.alpha) * force / c + np.abs(own)
            second = half * force * force / c
            if self.case.sample_weight is not None:
                total = first  # rows that count little lift their rounding to that of others
            by_row = self._value(self._fill(value), self._fill(first))
            return by_row, self._value(value.sum(), total.sum(), np.asarray(second.sum()))

    def level_gradient(self):
        """By level: sums over groups of rows that share so many bits, and their differences."""
        with localcontext(self.context):
            of, rows = self.arithmetic.of, self.rows
            half, zero = of(0.5)[()], of(0.0)[()]
            lcp, size = self.lcp[np.ix_(rows, rows)], np.abs(self.y[rows])
            n_levels = self.case.order.n_levels
            depths = sorted({int(d) for d in np.unique(lcp)} | {n_levels})
            sums = {}
            for depth in depths:
                together = lcp >= depth
                total = [zero, zero, zero]
                for first_row in np.unique(together.argmax(axis=1)):
                    group = together[first_row]
                    pull = self.inverse[group].sum(axis=0)
                    own, force, most = pull[group].sum(), pull @ self.y[rows], np.abs(pull) @ size
                    total[0] = total[0] + half * (own - force * force)
                    total[1] = total[1] + half * own + abs(force) * most
                    total[2] = total[2] + half * most * most
                sums[depth] = total
            nothing = [zero, zero, zero]
            table = [
                sums[next(d for d in depths if d >= at)] if at <= n_levels else nothing
                for at in range(n_levels + 2)
            ]
            value = [a[0] - b[0] for a, b in pairwise(table)]
            first = [a[1] + b[1] for a, b in pairwise(table)]
            second = [a[2] + b[2] for a, b in pairwise(table)]
            value[0] = -table[1][0]  # W(0) is 0 whatever the weights
            kind = object if self.arithmetic.exact else np.float64
            return self._value(*(np.array(part, kind) for part in (value, first, second)))

    def posterior(self, at, rows=None, message=None, inverse=None, lcp=None):
        """Mean and covariance of f at the rows `at` of all rows, old and new.

        lcp: of `rows` with `at`, if it is not that of their keys.
        """
        with localcontext(self.context):
            rows = self.rows if rows is None else rows
            inverse = self.inverse if inverse is None else inverse
            lcp = self.lcp[np.ix_(rows, at)] if lcp is None else lcp
            cross, y = self.cumulative[lcp], self.y[rows]
            gain = inverse @ cross
            value = gain.T @ y if len(rows) else self.arithmetic.of(np.zeros(len(at)))
            first = np.abs(gain).T @ np.abs(y) if len(rows) else value
            cov = self.K[np.ix_(at, at)]
            cov = cov - cross.T @ gain if len(rows) else cov
            largest = np.abs(self.y).max()
            first = np.maximum(first, largest * self.arithmetic.of(self.least_gain)[()])
            mean = self._value(value, first, least=largest)
            return mean, self._value(cov, np.abs(cov), least=self.prior)

    def apart(self, at):
        """Mean, variance and run at rows that part from a row which was observed once.

        Such a row has its key to itself. A new row with this key parts from it where it parts from
        all other rows. Rows of weight 0 are rows, too.
        """
        n, n_levels = self.case.n, self.case.order.n_levels
        lcp = self.lcp[:n, at].copy()
        among = self.lcp[:n, :n] * (1 - np.eye(n, dtype=int))
        for j in range(len(at)):
            (same,) = np.nonzero(lcp[:, j] == n_levels)
            if len(same) == 1 and self.case.weights[same[0]] <= 1.0:
                lcp[same[0], j] = among[same[0]].max()
        mean, cov = self.posterior(at, lcp=lcp[self.rows])
        with localcontext(self.context):
            run = self.prior - self.cumulative[lcp.max(axis=0)]
            run = self._value(run, np.abs(run), least=self.prior)
        return mean, Value(np.diag(cov.value), np.diag(cov.first)), run

    def walk(self, at, normals):
        """A function drawn at the row `at` of all rows, given one normal per level.

        At every level f changes by N(0, v), given f above and the rows below. These say s and m
        of f there: 1 / s = 1' A^-1 1 and m = s 1' A^-1 y, with A their covariance given f.
        """
        with localcontext(self.context):
            of = self.arithmetic.of
            lcp, normals = self.lcp[self.rows, at], of(normals)
            value = size = of(0.0)[()]
            for i in range(len(normals)):
                v = self.cumulative[i + 1] - self.cumulative[i]
                if not v > 0:
                    continue
                below = self.rows[lcp > i]
                gain, pull, most, var = of(1.0)[()], 0 * v, 0 * v, v
                if len(below):
                    A = self.K[np.ix_(below, below)] - self.cumulative[i + 1]
                    A[np.diag_indices(len(below))] += self.message[lcp > i]
                    weight = self.arithmetic.inverse(A)[0].sum(axis=0)
                    one = of(1.0)[()]
                    gain = one / (one + v * weight.sum())
                    pull, most = (
                        gain * v * (weight @ y) for y in (self.y[below], np.abs(self.y[below]))
                    )
                    var = v * gain
                step = np.sqrt(var) * normals[i]
                value, size = gain * value + pull + step, gain * size + most + abs(step)
            return self._value(np.array([value]), np.array([size]))

    def leave_out(self, row, whole):
        """Mean and variance of f at a row given the others, and its copies but one."""
        with localcontext(self.context):
            weight = self.weight.copy()
            one = self.arithmetic.of(1.0)[()]
            left = weight[row] - one
            weight[row] = left if left > 0 and not whole else 0 * one
            rows = np.flatnonzero(np.asarray(weight > 0, bool))
            message = self.variance[rows] / weight[rows]
            inverse = self._invert(rows, message)[0] if len(rows) else None
        if inverse is None:
            inverse = np.zeros((0, 0), self.K.dtype)
        mean, cov = self.posterior(np.array([row]), rows, message, inverse)
        return mean, Value(np.diag(cov.value), np.diag(cov.first))
