"""What `Ensemble` and its namespace call without importing it: modules that implement a protocol fill the table.

The package imports them all, so that the table is full wherever an ensemble can be made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PROTOCOLS", "ProtocolTable"]


class ProtocolTable:
    """The functions of an ensemble's protocols."""

    get_item: Callable[..., Any]
    set_item: Callable[..., None]
    namespace_of: Callable[..., Any]
    lifted_names: dict[str, Any]
    register_jax: Callable[[], None]
    call_ufunc: Callable[..., Any]
    call_numpy_function: Callable[..., Any]
    call_cupy_kernel: Callable[..., Any]
    call_torch_function: Callable[..., Any]
    beside_sparse: Callable[..., Any]
    sparse_product: Callable[..., Any]
    is_asked_by_scipy: Callable[[], bool]
    python_number: Callable[..., Any]
    refusal: Callable[[], str]
    what_to_call: Callable[[], tuple[str, str] | None]
    text: Callable[..., str]
    formatted: Callable[..., str]
    html: Callable[..., str]
    to_xarray: Callable[..., Any]
    set_in_xarray: Callable[..., Any]


PROTOCOLS = ProtocolTable()
