"""The few types that signatures share."""

from __future__ import annotations

from typing import Any

Array = Any
"""An array of any Array API library."""

Namespace = Any
"""A module or object that offers the Array API."""
