"""Figures of the paper's Table 1 (mean, two standard errors over three seeds), for comparison.

Cohen, Daulton, Osborne, "Log-Linear-Time Gaussian Processes Using Binary Tree Kernels",
NeurIPS 2022.
"""

TABLE_1 = {
    "pol": {
        ("BTE", "nll"): (-0.625, 0.035),
        ("BTE", "rmse"): (0.154, 0.006),
        ("BT", "nll"): (-0.49, 0.04),
        ("BT", "rmse"): (0.161, 0.004),
    },
    "elevators": {
        ("BTE", "nll"): (0.649, 0.032),
        ("BTE", "rmse"): (0.478, 0.021),
        ("BT", "nll"): (0.646, 0.023),
        ("BT", "rmse"): (0.476, 0.018),
    },
    "bike": {
        ("BTE", "nll"): (-0.708, 0.433),
        ("BTE", "rmse"): (0.118, 0.057),
        ("BT", "nll"): (-0.806, 0.273),
        ("BT", "rmse"): (0.103, 0.029),
    },
    "kin40k": {
        ("BTE", "nll"): (0.869, 0.004),
        ("BTE", "rmse"): (0.58, 0.003),
        ("BT", "nll"): (0.881, 0.008),
        ("BT", "rmse"): (0.587, 0.006),
    },
    "protein": {
        ("BTE", "nll"): (0.781, 0.023),
        ("BTE", "rmse"): (0.608, 0.008),
        ("BT", "nll"): (0.845, 0.026),
        ("BT", "rmse"): (0.623, 0.011),
    },
    "keggdirected": {
        ("BTE", "nll"): (-1.031, 0.02),
        ("BTE", "rmse"): (0.086, 0.003),
        ("BT", "nll"): (-1.029, 0.021),
        ("BT", "rmse"): (0.086, 0.003),
    },
    "keggundirected": {
        ("BTE", "nll"): (-0.667, 0.007),
        ("BTE", "rmse"): (0.12, 0.001),
        ("BT", "nll"): (-0.667, 0.007),
        ("BT", "rmse"): (0.121, 0.001),
    },
}
