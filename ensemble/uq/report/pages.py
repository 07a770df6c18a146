"""What `UqResult.report` calls without importing it: a page is made with analyses that import results themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PAGES", "Pages"]


class Pages:
    """The maker of pages, which the package fills in."""

    make: Callable[..., Any]


PAGES = Pages()
