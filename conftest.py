"""Leave out, where the doctests are collected, the modules of libraries that are not installed."""

import importlib.util

BRIDGES = {"jax": "ensemble/linalg/bridge/jax_rules.py", "torch": "ensemble/linalg/bridge/torch_rules.py"}

collect_ignore = [path for library, path in BRIDGES.items() if importlib.util.find_spec(library) is None]
