"""An ensemble is a JAX tree with one leaf, its samples: `jit`, `grad` and `vmap` take it as it is.

JAX is never imported here. Where it has been imported already, the first ensemble or namespace that may need it
registers `Ensemble` as a pytree.
"""

from __future__ import annotations

import sys
from typing import Any

from ensemble.scalar.interop.jax_sets import key_of, remember, set_of
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["register"]

_done = False


def register() -> None:
    """Register `Ensemble` as a pytree, once, if JAX is there."""
    global _done
    if _done or "jax.numpy" not in sys.modules:
        return
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is None or not hasattr(tree_util, "register_pytree_with_keys"):  # JAX is being imported right now
        return
    from ensemble.scalar.ensemble import Ensemble, wrap

    _done = True
    key = tree_util.GetAttrKey("samples")

    def flattened(x: Ensemble) -> Any:
        return [(key, x.samples)], key_of(x)

    def restored(set_key: Any, leaves: Any) -> Ensemble:
        # JAX also builds trees of placeholders: nothing may be read from the leaf.
        x: Ensemble = wrap(leaves[0], set_of(set_key, leaves[0]))
        remember(x, set_key)
        return x

    tree_util.register_pytree_with_keys(Ensemble, flattened, restored, lambda x: ([x.samples], key_of(x)))


PROTOCOLS.register_jax = register
