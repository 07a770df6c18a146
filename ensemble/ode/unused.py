"""Entries of p that nothing depends on: a mistake in their order or number, which no shape shows."""

from __future__ import annotations

from ensemble._check import message, warn_caller
from ensemble.ode.compiled import events_graph
from ensemble.ode.methods.stochastic import StochasticSystem
from ensemble.ode.ode_result import OdeWarning
from ensemble.ode.problem import Problem

__all__ = ["warn_of_unused"]

SHOWN = 6


def warn_of_unused(problem: Problem, k: int, name: str) -> None:
    """Warn of those of the `k` parameters that neither f nor an event depends on, where traces show all of them."""
    system = problem.system
    if not k or (problem.events and isinstance(system, StochasticSystem)):  # whose events get further parameters
        return
    try:
        graphs = [system.graph, events_graph(problem)]
    except (TypeError, AttributeError):
        return
    used = {position - 1 - system.n for graph in graphs if graph is not None for position in graph.input_dtypes}
    unused = [f"p[{j}]" for j in range(k) if j not in used]
    if unused:
        shown = ", ".join(unused[:SHOWN]) + (f", ... ({len(unused)} in all)" if len(unused) > SHOWN else "")
        seen = f"{k} of which {shown} {'is' if len(unused) == 1 else 'are'} used by none"
        text = message(name, "entries of p", "be used by f or an event", seen, "Leave them out, or see which f reads.")
        warn_caller(text, OdeWarning)
