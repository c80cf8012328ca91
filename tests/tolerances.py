"""One table of tolerances. Loosening one is a commit of its own that names the measured error.

Pairs are for numpy's `assert_allclose`; single numbers are relative or absolute, as the test says.
"""


def both(limit):
    """A pair of the same relative and absolute tolerance."""
    return {"rtol": limit, "atol": limit}


# Two routes to the same number, in float64.
LAST_BIT = 1e-15  # sums of a few numbers of size 1
HANDFUL = 1e-14  # a handful of roundings
REORDERED = 1e-13  # sums of the same terms in another order
ROUNDING = 1e-12  # one formula written in two ways, tens of roundings
DENSE = 1e-10  # values against dense algebra, condition < 1e4
CHAINED = 1e-9  # values that went through logarithms, searches or solves to 1e-12
SUMMED = 1e-8  # sums over all rows, integrals, log determinants against dense algebra
STEPPED = 1e-7  # optimisers' steps on sums in another order
FITTED = 1e-6  # predictions after optimisers whose steps differ by rounding

# The same as pairs.
SHARDS = both(REORDERED)
VALUE = both(DENSE)
LOOSE = both(STEPPED)
FITS = both(FITTED)

REGRESSED = both(1e-8)  # regressions on rows of nearly singular matrices, with a jitter of 1e-10
ROUNDED_WEIGHTS = both(5e-6)  # smooth part with weights in float32, 60 rows: 2e-6 was seen
GRADIENT = both(1e-8)  # gradients against the dense closed form
DIFFERENCE = both(1e-6)  # gradients against central differences
SINGLE = both(1e-4)  # float32 messages against float64
HUNDRED_ROUNDINGS = 2e-14  # random cases, by measures of their own: 5e-15 was seen
HUNDRED_SINGLE = HUNDRED_ROUNDINGS * 2.0**29  # as many roundings to float32: 1.1e-5
JITTERED = 2e-10  # smooth part with all rows inducing, of the scale: a jitter of 1e-10
SINGLE_STEPS = 5e-7  # the same with all rows neighbours and weights in float32: 7e-8 was seen
SINGLE_SOLVES = 1e-8  # what comes of solves with either, by the condition: 1.1e-9 was seen
EXTENDED = 1e-12  # relative error of the nll against 80-digit arithmetic, any noise
HALF_DIFFERENCE = {"rtol": 1e-5, "atol": 1e-4}  # central differences in the noise, steps of 1e-6
EXACT_QUANTILE = 1e-9  # quantiles against a bracketed search of the distribution
EXPONENTIATED = 1e-7  # densities whose logarithms are in the hundreds
EXTREME_DENSITY = 1e-4  # nats, of targets of size 1e-300 to 1e300
OFFSET = 1e-3  # targets of size 1 after 1e9 was added: 1e-7 is what float64 leaves

# The CUDA engine against the CPU engine.
ENGINES = 1e-10  # the same terms in another order, of their sum or of the largest value
ENGINES_SINGLE = 1e-5  # the same of float32 messages
ENGINES_SINGLE_SUMS = 1e-4  # sums over all rows of float32 messages
ENGINES_NOISE = 1e-9  # derivative by the noise: a sum over all rows
ENGINES_FIT = 0.02  # rmse (relative) and nll (nats) of fits whose training differs by rounding

# Iterations that end at a tolerance of their own.
SOLVED = both(1e-7)  # what comes of solves to 1e-11, condition < 1e4
CORRECTED = 0.2  # of a row's effect on means: corrected at 64 near rows of 600, not all
FACTOR = 0.02  # factor of variances from 200,000 draws, relative: three standard errors
SOLVED_DIRECTLY = 1e-6  # solves to 1e-10 or 1e-11, condition < 1e7
SOLVED_TO_1E_10 = 1e-9  # relative residual of solves to 1e-10, and error by the condition
SOLVED_TO_1E_11 = 1e-10  # what comes of solves to 1e-11, by the condition
USUAL_SOLVE = 1e-4  # means and deviations after solves to the tolerance that users get
USUAL_ALPHA = 1e-5  # weighted rows' fit after such solves, of targets of size 1
HARD_SOLVE = 1e-3  # of the targets' or the prior's size, with next to no noise
HARD_VARIANCE = 0.02  # the same, relative
VARIANCE_OF_SOLVES = 1e-2  # variances by solves to the tolerance that users get, little noise
LANCZOS = 1e-5  # nats, quadrature behind a full preconditioner
SCIPY_CG = 1e-4  # scipy's conjugate gradients stop at 1e-5 of |b|
SCIPY_CG_RESIDUAL = 1.1e-5  # of |b|: their own residual is updated, not recomputed
SLSQP = 2e-4  # weights of the mixture against scipy's SLSQP
STACKED = 1e-8  # weights of the mixture against a closed form
STATIONARY = 1e-5  # slopes at the maximum over the simplex
AVERAGE_OF_COPIES = 0.05  # weights of an average, whose ridge counts rows that differ
TAIL_COPIES = 1e-4  # quantiles of tails at two optima of their weights, relative
GPYTORCH_CG = 0.02  # GPyTorch's conjugate gradients in float32 against Cholesky in float64
SQUARED_DISTANCES = 1e-7  # taken as differences of squares, of equal rows: 2e-8 was seen
QUADRATURE = 1e-6  # scipy's quad
ADAPTIVE = 1e-5  # quadrature with an estimated error of 1e-6 in each panel: 2e-6 was seen
KINKED = 1e-4  # the same of functions with kinks: 4e-5 was seen
MANY_QUANTILES = 1e-3  # the CRPS of a thousand quantiles for that of the distribution

# Samples: about three standard errors or more, for the seed that the test names.
SAMPLED = {"max": 5.0, "rms": 1.6}  # of errors in standard errors
TAIL_QUANTILE = 0.1  # quantiles of 5,000 residuals, down to 1%
TAIL_SCALE = 0.08  # the same from 5% on, relative
TAIL_OF_FEW = 0.15  # quantiles of residuals with heavy tails, or of 500
SKEW_QUANTILE = 0.2  # quantiles of 3,000 residuals whose lower tail has an end
SKEW_PROBABILITY = 0.05  # of these residuals
TAIL_OF_SOLVES = 1e-3  # quantiles of residuals that came of solves, relative
CONSTANT_COLUMNS = 0.05  # of the targets' deviation: the mean of 60 rows
SAME_X_MEAN = 0.2  # means at one x against averages of 40 targets, noise 0.5
SAME_X_DEVIATION = 0.35  # their deviation, relative
CATEGORY_LEVEL = 0.35  # levels of 8 categories, about 50 rows each, shrunk to their mean
