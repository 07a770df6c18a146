"""A model that a server of UM-Bridge offers: ``python -m tests.uq.adapters.served PORT``."""

import sys

import numpy as np
from scipy import stats

import ensemble as en
from ensemble.uq.adapters import serve_um_bridge, to_um_bridge

inputs = en.Inputs(load=stats.norm(1.0, 0.5), v=en.uq.Vector(stats.uniform(1.0, 1.0), 2))


def beam(x):
    """A number and a vector; samples of a large load fail."""
    x.fail(x.load > 1.8, "too much load")
    ramp = en.shared(np.linspace(0.0, 1.0, 3))
    return {"tip": x.load / x.v[0], "line": ramp * x.v[1]}


if __name__ == "__main__":
    serve_um_bridge([to_um_bridge(beam, inputs, name="beam")], int(sys.argv[1]))
