"""The step of a moist atmosphere: its correction lowers the divergence, each sample is its own run."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bench_atmosphere_step import Atmosphere, Clock
from benchmarks.mountain import mountain_mesh


@pytest.mark.slow
def test_the_pressure_takes_more_than_half_of_the_divergence_of_a_gust() -> None:
    """A bump of wind in the middle of the box."""
    mesh = mountain_mesh((10, 9, 10))
    model = Atmosphere(mesh, 2)
    x, y, z = mesh.points.T
    gust = np.exp(-((x - 3e4) ** 2 + (y - 3e4) ** 2) / 1e8 - ((z - 8e3) / 3e3) ** 2)
    u = model.velocity.copy()
    u[:, 2] += gust[:, None]
    assert model.divergence(model.projected(u, Clock())) < 0.5 * model.divergence(u)


@pytest.mark.slow
def test_condensation_and_rain_keep_the_water_and_heat_the_air() -> None:
    """Vapour, cloud and rain are exchanged by the moisture alone."""
    model = Atmosphere(mountain_mesh((6, 5, 6)), 2)
    scalars = {name: values + 1e-3 * (name == "water vapour") for name, values in model.scalars.items()}
    after = model.condensed(scalars)
    water = ("water vapour", "cloud water", "rain water")
    np.testing.assert_allclose(sum(after[n] for n in water), sum(scalars[n] for n in water), rtol=1e-13)
    assert (after["temperature"] >= scalars["temperature"]).all() and (
        after["rain water"] >= scalars["rain water"]
    ).all()
