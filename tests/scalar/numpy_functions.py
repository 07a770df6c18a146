"""How to call NumPy's functions at random: one entry for every function that is tried."""

from tests.scalar import numpy_algebra, numpy_elementwise, numpy_reductions, numpy_shapes, numpy_ufuncs
from tests.scalar.numpy_table import CALLS, drawn

TABLES = (numpy_ufuncs, numpy_reductions, numpy_elementwise, numpy_shapes, numpy_algebra)
"""The modules that fill the table of calls."""

__all__ = ["CALLS", "TABLES", "drawn"]
