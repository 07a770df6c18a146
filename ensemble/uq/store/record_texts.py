"""Parts of a record of the journal: padding to eight bytes, and the reasons of failures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

__all__ = ["aligned", "padded", "padding", "reasons_bytes", "reasons_read"]

ALIGNMENT = 8
PADDING = b"\0" * ALIGNMENT


def aligned(n_bytes: int) -> int:
    """`n_bytes` up to the next multiple of the alignment."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def padding(n_bytes: int) -> bytes:
    """The zero bytes behind `n_bytes` bytes, up to the alignment."""
    return PADDING[: -n_bytes % ALIGNMENT]


def padded(text: bytes) -> bytes:
    """`text` with zero bytes up to the alignment."""
    return text + padding(len(text))


def reasons_bytes(reasons: Mapping[int, str], earlier: Mapping[int, Sequence[str]] | None) -> bytes:
    """The padded JSON of the reasons of a group, with those of earlier attempts where there were some."""
    if not reasons and not earlier:
        return b""
    now = {str(i): text for i, text in reasons.items()}
    before = {str(i): list(texts) for i, texts in (earlier or {}).items()}
    return padded(json.dumps({"reasons": now, "earlier": before} if before else now).encode())


def reasons_read(text: bytes) -> tuple[dict[int, str], dict[int, list[str]]]:
    """What `reasons_bytes` has written, without the padding."""
    found = json.loads(text) if text else {}
    now, before = (found["reasons"], found["earlier"]) if "earlier" in found else (found, {})
    earlier = {int(i): [str(reason) for reason in texts] for i, texts in before.items()}
    return {int(i): str(reason) for i, reason in now.items()}, earlier
