"""How to call NumPy's functions at random: one entry for every function that is tried."""

import numpy_algebra
import numpy_elementwise
import numpy_reductions
import numpy_shapes
import numpy_ufuncs
from numpy_table import CALLS, drawn

TABLES = (numpy_ufuncs, numpy_reductions, numpy_elementwise, numpy_shapes, numpy_algebra)
"""The modules that fill the table of calls."""

__all__ = ["CALLS", "TABLES", "drawn"]
