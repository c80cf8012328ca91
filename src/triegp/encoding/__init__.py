"""Encode feature columns as bits: map each feature onto [0, 1], then quantise it."""

from typing import TYPE_CHECKING, Any

from triegp.encoding.codes import Codes, pack_codes
from triegp.imports import import_once

if TYPE_CHECKING:
    from triegp.encoding.encoder import BitEncoder

__all__ = ["BitEncoder", "Codes", "pack_codes"]


if not TYPE_CHECKING:  # scikit-learn, of which the encoder is a transformer, loads on first use

    def __getattr__(name: str) -> Any:
        if name != "BitEncoder":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_once("triegp.encoding.encoder").BitEncoder
