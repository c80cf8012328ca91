"""Arrays for numba's simulator that refuse to be mixed with numpy's, as CuPy's do.

The simulator's arrays are numpy's, so it does not notice implicit copies between host and card.
`strict_card` puts these arrays in their place: numpy's functions work on them, but raise TypeError
if arrays of the host are among the arguments, and kernels take them and nothing else.
"""

import contextlib
import sys
import types

import numpy as np
import pytest
import scipy.linalg
from numpy.lib.mixins import NDArrayOperatorsMixin

from on_card import ON_CARD
from triegp.engines.cuda import algebra, card

MAKERS = ("array", "asarray", "ascontiguousarray")  # they take arrays of the host, too


class Device:
    """The only device of the simulator."""

    def __init__(self, number=0):
        self.id = number

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class CardArray(NDArrayOperatorsMixin):
    """Behaves as a CuPy array: `get` copies it to the host."""

    __module__ = "cupy"
    device = Device()

    def __init__(self, array):
        self._array = array

    def get(self):
        return self._array.copy()

    def __dlpack_device__(self):
        return (2, 0)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return wrap(getattr(ufunc, method)(*inner(inputs), **inner(kwargs)))

    def __array_function__(self, function, kinds, args, kwargs):
        return wrap(function(*inner(args), **inner(kwargs)))

    def __getattr__(self, name):
        if name.startswith("__") or name == "_array":
            raise AttributeError(name)
        found = getattr(self._array, name)
        return over(found) if callable(found) else wrap(found)

    def __getitem__(self, key):
        return wrap(self._array[inner(key)])

    def __setitem__(self, key, value):
        self._array[inner(key)] = inner(value)

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return iter([wrap(part) for part in self._array])

    def __bool__(self):
        return bool(self._array)

    def __int__(self):
        return int(self._array)

    def __float__(self):
        return float(self._array)

    def __format__(self, spec):
        return format(self._array[()], spec)


def inner(value):
    """The numpy arrays inside arrays of the card; TypeError for arrays of the host."""
    if isinstance(value, CardArray):
        return value._array
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if type(value) in (list, tuple):
        return type(value)(map(inner, value))
    if type(value) is dict:
        return {name: inner(part) for name, part in value.items()}
    return value


def wrap(value):
    """Arrays, and numbers that numpy made, as they come from the card."""
    if isinstance(value, np.ndarray | np.generic):
        return CardArray(np.asarray(value))
    if isinstance(value, tuple):  # numpy's linalg returns named ones
        return tuple(map(wrap, value))
    return list(map(wrap, value)) if type(value) is list else value


def over(function):
    """A function of numpy's for arrays of the card."""
    return lambda *args, **kwargs: wrap(function(*inner(args), **inner(kwargs)))


class Library:
    """numpy in CuPy's place."""

    ndarray = CardArray
    from_dlpack = staticmethod(lambda array: CardArray(array._array.copy()))
    cuda = types.SimpleNamespace(
        Device=Device,
        is_available=lambda: True,
        get_current_stream=lambda: types.SimpleNamespace(ptr=0),  # the default one
        Stream=types.SimpleNamespace(null=types.SimpleNamespace(synchronize=lambda: None)),
    )

    def __init__(self, library=np):
        self._library = library

    def __getattr__(self, name):
        found = getattr(self._library, name)
        if isinstance(found, types.ModuleType):
            return Library(found)
        if isinstance(found, type) or not callable(found):
            return found
        if name not in MAKERS:
            return over(found)

        def make(array, *args, **kwargs):
            here = isinstance(array, CardArray)
            return wrap(found(array._array if here else np.array(array), *args, **kwargs))

        return make


@contextlib.contextmanager
def strict_card():
    """The engine's arrays are `CardArray` inside this context."""
    library, launch = Library(), card.Kernel.__call__

    def check(self, arguments):
        for value in arguments:
            if isinstance(value, tuple):
                check(self, value)
            elif isinstance(value, CardArray) and not value.flags.c_contiguous:
                raise ValueError(
                    f"{self.function.__name__} needs C-contiguous arrays, got one that is not"
                )

    def call(self, n_blocks, *arguments, together=False):
        check(self, arguments)
        launch(self, n_blocks, *inner(arguments), together=together)

    with pytest.MonkeyPatch.context() as patch:
        for module in engine_modules():
            if getattr(module, "xp", None) is np:
                patch.setattr(module, "xp", library)
        patch.setattr(card.Kernel, "__call__", call)
        patch.setitem(sys.modules, "cupy", library)
        forget()
        yield library
    forget()


@contextlib.contextmanager
def card_or_strict_one():
    """The card if there is one, else `strict_card`, triangular solves included."""
    if ON_CARD:
        yield
        return
    with strict_card(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(algebra, "solve_triangular", over(scipy.linalg.solve_triangular))
        yield


def forget():
    """Clear the engine's caches: they hold arrays of one kind or the other."""
    for module in engine_modules():
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def engine_modules():
    return [m for name, m in sys.modules.items() if name.startswith("triegp.engines.cuda.")]
