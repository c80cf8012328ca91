"""triegp itself: the defaults, the paper's two presets, and the defaults with one thing changed."""

import numpy as np

from bench.methods.task import Method

ABLATIONS = {
    "no shift": {"shift": False},
    "min-max alone": {"scaling": "minmax"},
    "ECDF alone": {"scaling": "ecdf"},
    "precision 4": {"precision": 4},
    "precision 8": {"precision": 8},
    "precision 16": {"precision": 16},
    "1 member": {"n_members": 1},
    "4 members": {"n_members": 4},
    "12 members": {"n_members": 12},
    "48 members": {"n_members": 48},
    "bit nugget, noise 0.01": {"nugget": "bit", "noise": 0.01},
    "noise floor 0.01": {"noise": 0.01},
    "prior variance 1": {"learn_scale": False},
    "stacking": {"mixture": "stacking"},
    "softmax": {"mixture": "softmax"},
    "best member": {"mixture": "best"},
    "BFGS": {"optimizer": "bfgs"},
    "1 candidate": {"n_candidates": 1},
}


def fit_with(**parameters):
    def fit(task):
        return _fitted(task, parameters).predict_distribution

    return fit


def fit_paper(**parameters):
    """The mixture and, of the same fits, the one with the lowest training nll alone."""

    def fit(task):
        from triegp import PredictiveDistribution

        model = _fitted(task, {"preset": "paper-bte", **parameters})
        mixture = model.predict_distribution

        def best(X):
            whole = mixture(X)
            k = [int(np.argmax(whole.weights))]  # the softmax gives it the most weight
            return PredictiveDistribution(np.ones(1), whole.means[k], whole.variances[k])

        return {f"paper-bte{suffix(parameters)}": mixture, f"paper-bt{suffix(parameters)}": best}

    return fit


def suffix(parameters):
    """End of the name of a variant of the paper's methods."""
    return "".join(f"-{name[0]}{value}" for name, value in parameters.items())


def fit_flagship(**parameters):
    def fit(task):
        from triegp import TrieGPRegressor

        model = TrieGPRegressor(random_state=task.seed, keep_rows=False, **parameters)
        return model.fit(task.X, task.y).predict_distribution

    return fit


def _fitted(task, parameters):
    from triegp import BinaryTreeGPRegressor

    model = BinaryTreeGPRegressor(random_state=task.seed, keep_rows=False, **parameters)
    return model.fit(task.X, task.y)


def _paper_methods(**parameters):
    fit, end = fit_paper(**parameters), suffix(parameters)
    more = "".join(f", {name} {value}" for name, value in parameters.items())
    return (
        Method(f"paper-bte{end}", (), fit, f"the paper's protocol, mixture of 20{more}", True),
        Method(f"paper-bt{end}", (), fit, f"the paper's protocol, best of 20{more}", True),
    )


MOST_ROWS = 1_000_000  # of the flagship; only flights3m has more
PRECISIONS = (2, 4, 8)
RAISED = {"etopo20": 16, "blogfeedback": 4}  # after ECDF; most distinct rows have distinct keys

METHODS = (
    Method("triegp", (), fit_with(), "`BinaryTreeGPRegressor()`", True),
    Method("triegp-flagship", (), fit_flagship(), "`TrieGPRegressor()`", True, MOST_ROWS),
    Method(
        "triegp-flagship-cuda",
        ("numba_cuda", "cupy"),
        fit_flagship(engine="cuda"),
        '`TrieGPRegressor(engine="cuda")`: the smooth part is exact; predicts on the CPU',
        True,
        MOST_ROWS,
    ),
    *_paper_methods(),
    *(method for p in PRECISIONS for method in _paper_methods(precision=p)),
    *_paper_methods(scaling="ecdf"),
    *(method for p in RAISED.values() for method in _paper_methods(scaling="ecdf", precision=p)),
    *(
        Method(
            f"triegp, {name}", (), fit_with(**parameters), f"the defaults, but {parameters}", True
        )
        for name, parameters in ABLATIONS.items()
    ),
)
