"""The forms of the linear filter and smoother, and which of them serves a series: one table for both.

`FILTERS` in `filters.py` and `SMOOTHERS` in `smoothers.py` hold what each form runs. A series for which a form fails is
repaired: by square roots of covariances, or by the recursion where a scan has no elements. The result names both.
"""

from __future__ import annotations

from typing import NamedTuple

from ensemble._kernels.kalman.scan import Sengupta
from ensemble.apps.kalman.devices.compiled import compiled_backend
from ensemble.apps.kalman.series import Series

__all__ = ["FORMS", "Options", "form_of", "form_text"]

FORMS = {
    "diffuse": "steps of a diffuse prior",
    "compiled roots": "compiled recursion on square roots",
    "roots": "recursion on square roots by array functions",
    "compiled": "compiled recursion or scan",
    "recursion": "recursion by array functions",
    "scan": "scan by array functions",
}
"""What results say of each form. The first one runs, for the steps after its own, the form that serves the rest."""


class Options(NamedTuple):
    """The arguments of a filter or smoother that choose among forms."""

    method: str
    scan: str | Sengupta
    form: str = "covariance"


def form_of(series: Series, options: Options) -> tuple[str, str | None]:
    """Return the form in `FORMS` that serves a series, and the backend of its compiled code, None without one."""
    if series.diffuse is not None:
        return "diffuse", None
    if options.form == "square_root":
        backend = compiled_backend(series, "sequential")
        return ("compiled roots", backend) if backend == "numba" else ("roots", None)
    backend = compiled_backend(series, options.method)
    if backend is not None:
        return "compiled", backend
    return ("recursion" if options.method != "scan" else "scan"), None


def form_text(name: str, backend: str | None, later: str = "") -> str:
    """Return what a result says of a form, and of the form of its later steps."""
    text = FORMS[name] if backend is None else f"{FORMS[name]} ({backend})"
    return f"{text}, then {later}" if later else text
