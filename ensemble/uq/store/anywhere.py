"""Stores by their place: a folder of this machine, or a URL of an object store."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from ensemble.uq.store.remote import RemoteStore, is_url
from ensemble.uq.store.store import Store

__all__ = ["create_store", "manifest_at", "open_store"]

Place = str | PathLike[str]


def create_store(place: Place, manifest: Mapping[str, Any]) -> Any:
    """Start the store of a new study: `Store.create`."""
    return RemoteStore.create(str(place), manifest) if is_url(place) else Store.create(place, manifest)


def open_store(place: Place, manifest: Mapping[str, Any] | None = None, *, force: bool = False) -> Any:
    """Open the store of a study: `Store.open`."""
    if is_url(place):
        return RemoteStore.open(str(place), manifest, force=force)
    return Store.open(place, manifest, force=force)


def manifest_at(place: Place) -> dict[str, Any]:
    """The manifest of a study: `Store.stored_manifest`."""
    return RemoteStore.stored_manifest(str(place)) if is_url(place) else Store.stored_manifest(place)
