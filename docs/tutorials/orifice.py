"""How well does an orifice plate measure a flow? A published solver for plain numbers, run on uncertain readings.

Run it, from any folder: ``python orifice.py`` prints what it finds and draws ``orifice.png`` in the current folder, or
the file that its argument names. It needs ``pip install 'ensemble-arrays[tutorials]'``.
"""

import sys
from pathlib import Path

from fluids.flow_meter import differential_pressure_meter_solver
from scipy import stats

import ensemble as en

# %% One measurement, as an engineer works it out: the mass flow (kg/s) of water through an orifice plate (ISO 5167),
# from the diameters of pipe and bore (m), the pressures before and behind the plate (Pa), density (kg/m^3) and
# viscosity (Pa s). The solver iterates, because the discharge coefficient depends on the flow.
fixed = {"k": 1.3, "meter_type": "ISO 5167 orifice", "taps": "D"}
nominal = differential_pressure_meter_solver(D=0.0737, D2=0.05, P1=200e3, P2=183e3, rho=998.0, mu=1.05e-3, **fixed)

# %% The readings are uncertain. First changed line: what is known of each of them.
inputs = en.Inputs(
    D=stats.norm(0.0737, 1e-4),
    D2=stats.norm(0.05, 5e-5),
    P1=stats.norm(200e3, 300.0),
    P2=stats.norm(183e3, 300.0),
    rho=stats.uniform(996.0, 4.0),
    mu=stats.uniform(0.9e-3, 0.3e-3),
)


# %% Second changed line: the call takes its numbers from `x`.
def flow(x):
    return differential_pressure_meter_solver(D=x.D, D2=x.D2, P1=x.P1, P2=x.P2, rho=x.rho, mu=x.mu, **fixed)


# %% Third changed line. `vectorize` calls a function of plain numbers once per sample; a sample on which it raises is
# left out and counted. (`en.run(flow, ...)` inside the model gives the same bits, each sample along its own path
# through the solver. It pays where the solver works on arrays; here, on single numbers, a loop is faster.)
result = en.propagate(en.vectorize(flow), inputs, 4096, seed=1, progress=False)

# %% Which instrument is worth replacing? First Sobol' indices: the part of the variance that goes with one input.
indices = en.sobol_indices(en.vectorize(flow), inputs, 1024, seed=2, progress=False)

# %% What a handbook does instead: derivatives at the nominal values.
spread = {"D": 1e-4, "D2": 5e-5, "P1": 300.0, "P2": 300.0, "rho": 4.0 / 12**0.5, "mu": 0.3e-3 / 12**0.5}
centre = {"D": 0.0737, "D2": 0.05, "P1": 200e3, "P2": 183e3, "rho": 998.0, "mu": 1.05e-3}


def by_derivatives():
    """The standard deviation to first order, by central differences of one deviation."""
    squares = 0.0
    for name, width in spread.items():
        ends = [
            differential_pressure_meter_solver(**{**centre, name: centre[name] + s * width}, **fixed) for s in (-1, 1)
        ]
        squares += (0.5 * (ends[1] - ends[0])) ** 2
    return squares**0.5


def report():
    low, high = result.confidence_interval("y")
    print(f"nominal flow          {nominal:.4f} kg/s")
    print(f"mean of {result.ids.size:,} samples {result.mean('y'):.4f} kg/s, 95 % interval {low:.4f} to {high:.4f}")
    print(f"standard deviation    {result.std('y'):.4f} kg/s (first-order handbook rule: {by_derivatives():.4f})")
    for name, first in zip(indices.inputs, indices.first["y"], strict=True):
        print(f"part of {name:<4}          {100.0 * first:5.1f} %")


def draw(path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 7.2), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    result.plot.hist(ax=upper)
    upper.set_xlabel("mass flow (kg/s)")
    indices.plot(ax=lower)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    report()
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "orifice.png"))
