"""Columns to bits: each feature is mapped onto [0, 1] and cut to a number of bits."""

from triegp.encoding.codes import Codes, pack_codes
from triegp.encoding.encoder import BitEncoder

__all__ = ["BitEncoder", "Codes", "pack_codes"]
