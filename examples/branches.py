"""
A function with branches
========================

Code that asks ``if`` of a value needs one answer. ``en.run`` lets each group of samples take its own way.
"""

import matplotlib.pyplot as plt
import numpy as np

import ensemble as en


# %%
# Unchanged code: the terminal speed of a sphere that falls in water, by the drag law of its own Reynolds number.
def terminal_speed(diameter):  # m
    density, viscosity, buoyant = 998.0, 1.0e-3, 1650.0  # kg/m3, Pa s, kg/m3
    speed = buoyant * 9.81 * diameter**2 / (18.0 * viscosity)
    for _ in range(200):
        reynolds = density * speed * diameter / viscosity
        if reynolds < 1.0:
            drag = 24.0 / reynolds
        elif reynolds < 1000.0:
            drag = 24.0 / reynolds * (1.0 + 0.15 * reynolds**0.687)
        else:
            drag = 0.44
        new = (4.0 * 9.81 * diameter * buoyant / (3.0 * drag * density)) ** 0.5
        if abs(new - speed) < 1e-10 * new:
            return new
        speed = 0.5 * (speed + new)
    return speed


# %%
# 200 diameters at once. Where samples disagree, they go on in groups.
diameters = np.geomspace(5e-5, 5e-3, 200)
result = en.run(terminal_speed, en.Ensemble(diameters))
speed = result.value.samples
print(f"{speed.size} spheres, {len(result.groups)} groups, {speed.min():.4f} to {speed.max():.3f} m/s")

# %%
# Each sample has the value of its own call, to the last bit.
alone = np.array([terminal_speed(diameter) for diameter in diameters])
print("equal to single calls:", np.array_equal(speed, alone))

plt.loglog(1e3 * diameters, speed)
plt.xlabel("diameter in mm")
plt.ylabel("terminal speed in m/s")
plt.tight_layout()
