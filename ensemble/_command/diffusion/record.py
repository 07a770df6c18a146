"""State of an ``ensemble diffusion`` run, filled by the command, read by its table and its plot."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, to_numpy
from ensemble._command.diffusion.sampling import Estimate, estimate
from ensemble._typing import Array
from ensemble.apps.fem import DiffusionResult, RandomDiffusion

__all__ = ["Record"]


@dataclass
class Record:
    """Results of the samples done so far; the sample axis is last."""

    problem: RandomDiffusion
    options: argparse.Namespace
    ensemble_size: int
    points: np.ndarray
    response: np.ndarray
    iterations: np.ndarray
    newton_iterations: np.ndarray
    converged: np.ndarray
    profile: np.ndarray
    comm: Any = None
    """The communicator of the ranks that the nodes are shared out to."""
    done: int = 0
    timed: int = 0
    """Samples whose time is in `seconds`: all but those of the first ensemble, which compiles kernels."""
    interrupted: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    scalar_seconds: list[float] = field(default_factory=list)

    @property
    def good(self) -> np.ndarray:
        """The numbers of the samples that are done and converged."""
        return np.flatnonzero(self.converged[: self.done])

    @property
    def estimate(self) -> Estimate:
        """Statistics of the response over the good samples."""
        return estimate(self.response[self.good], self.good, self.options.sampler)

    def keep(self, result: DiffusionResult, first: int, n: int, line: np.ndarray, timed: bool) -> None:
        """Store the first `n` samples of `result` as samples `first` and on."""
        here = slice(first, first + n)
        self.response[here] = to_numpy(result.response.samples)[:n]
        self.iterations[here] = result.iterations[:n]
        self.newton_iterations[here] = result.newton_iterations[:n]
        self.converged[here] = result.converged[:n]
        self.profile[:, here] = self._at(line, result.u.samples[:, :n])
        for phase, seconds in result.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + timed * seconds
        self.timed += timed * n
        self.done = first + n

    def _at(self, nodes: np.ndarray, u: Array) -> np.ndarray:
        """u at some nodes of the mesh."""
        partition = self.problem.partition
        if partition is None:
            return to_numpy(u[asarray_like(nodes, u), :])
        numbers = partition.number_of(nodes)
        here = np.flatnonzero(partition.owner_of(numbers) == self.comm.rank)
        found = np.empty((nodes.size, u.shape[1]))
        for places, values in self.comm.allgather((here, u[numbers[here] - partition.first])):
            found[places] = values
        return found
