"""
A program outside Python
========================

The model is a program that reads one file and writes another. Here it is a script of Python; any language will do.
"""

import sys
import tempfile
from pathlib import Path

from scipy import stats

import ensemble as en

# %%
# The program and its input file, with a placeholder for each uncertain input.
place = Path(tempfile.mkdtemp())
template = place / "template"
template.mkdir()
(template / "beam.in").write_text("load = {{load}}\nstiffness = {{stiffness:.6e}}\n")
(template / "beam.py").write_text(
    "values = dict(line.split(' = ') for line in open('beam.in'))\n"
    "tip = float(values['load']) / (3.0 * float(values['stiffness']))\n"
    "open('tip.txt', 'w').write(repr(tip))\n"
)

# %%
# Each of the 16 samples runs in a folder of its own; its output is read from the file that it writes.
inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
beam = en.uq.Program([sys.executable, "-S", "beam.py"], {"tip": "tip.txt"}, template=template, folder=place / "runs")
result = en.propagate(beam, inputs, 16, seed=7, progress=False)
print(result)
