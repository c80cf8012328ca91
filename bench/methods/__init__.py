"""The methods that are compared: a name, what it needs, and a function that fits.

A fit takes a `Task` and returns a function from new rows to a prediction (`bench.distributions`) in
the units of y. Methods import what they need when they are called.
"""

from bench.methods import boosting, forests, gaussian_processes, gpytorch, trees
from bench.methods.task import Method, Task, missing

METHODS = {
    method.name: method
    for module in (trees, boosting, forests, gaussian_processes, gpytorch)
    for method in module.METHODS
}

__all__ = ["METHODS", "Method", "Task", "missing"]
