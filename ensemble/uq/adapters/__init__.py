"""Models and distributions for other packages, and theirs for this one: OpenTURNS, SALib, chaospy, UM-Bridge."""

from ensemble.uq.adapters.array_function import ArrayFunction
from ensemble.uq.adapters.distributions import from_chaospy, from_openturns
from ensemble.uq.adapters.functions import to_openturns, to_salib
from ensemble.uq.adapters.um_bridge import UmBridgeModel, from_um_bridge, serve_um_bridge, to_um_bridge

__all__ = [
    "ArrayFunction",
    "UmBridgeModel",
    "from_chaospy",
    "from_openturns",
    "from_um_bridge",
    "serve_um_bridge",
    "to_openturns",
    "to_salib",
    "to_um_bridge",
]
