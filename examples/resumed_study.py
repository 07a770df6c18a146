"""
A study that is extended
========================

With ``store=`` each finished group of samples is on disk: what was killed goes on, what is finished is extended.
"""

import tempfile
from pathlib import Path

from scipy import stats

import ensemble as en


def model(x):
    return {"deflection": x.load / (3.0 * x.stiffness)}


inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
store = Path(tempfile.mkdtemp()) / "beam.zarr"

# %%
# 256 samples, written to the store.
first = en.propagate(model, inputs, 256, seed=1, store=store, progress=False)
print(first)

# %%
# The same call with more samples, perhaps on another day: the first 256 are read, the others are run.
more = en.propagate(model, inputs, 1024, seed=1, store=store, resume=True, progress=False)
print(more)

# %%
# The store opens without the model, and has the same numbers.
found = en.uq.open_study(store)
print("read:", found.n_done, "samples; equal:", (found.values("deflection") == more.values("deflection")).all())
