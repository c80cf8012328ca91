"""Encode feature columns as bits: map each feature onto [0, 1], then quantise it."""

from triegp.encoding.codes import Codes, pack_codes
from triegp.encoding.encoder import BitEncoder

__all__ = ["BitEncoder", "Codes", "pack_codes"]
