"""Which call of another library was made with an ensemble, and what does the same for all samples."""

from __future__ import annotations

import sys
from types import FrameType

from ensemble._byte_code import assigns_entry
from ensemble._check import message
from ensemble.scalar.divergence.policy import caller, is_library_frame
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["refusal", "what_to_call"]

LIBRARIES = frozenset(("matplotlib", "pandas", "pyamg", "scipy", "seaborn", "skfem", "sklearn", "statsmodels"))

MATRIX = "ensemble.linalg.CrsMatrix.from_scipy(A)"

ADVICE = {
    "scipy.sparse.linalg.spsolve": "ensemble.krylov.direct(A, b) solves for every sample; A may be a SciPy matrix.",
    "scipy.sparse.linalg.splu": "ensemble.linalg.Factorization(A).solve(b) solves for every sample.",
    "scipy.sparse.linalg.factorized": "ensemble.linalg.Factorization(A).solve(b) solves for every sample.",
    "scipy.sparse.linalg.LinearOperator": f"{MATRIX} @ x multiplies every sample.",
    "scipy.sparse.linalg.eigsh": "ensemble.linalg.eigsh(A, k) takes a matrix per sample.",
    "scipy.sparse.diags": "ensemble.linalg.Diagonal(e) has e on its diagonal; CrsMatrix.from_coo has others.",
    "scipy.sparse.kron": "ensemble.linalg.kron(A, B) takes matrices with samples.",
    "scipy.sparse.bmat": "ensemble.linalg.block(...) takes matrices with samples.",
    "scipy.sparse.block_array": "ensemble.linalg.block(...) takes matrices with samples.",
    "scipy.integrate.solve_ivp": "ensemble.ode.solve(f, t_span, y0) steps each sample by its own error.",
    "scipy.integrate.odeint": "ensemble.ode.solve(f, t_span, y0) steps each sample by its own error.",
    "scipy.integrate.ode": "ensemble.ode.solve(f, t_span, y0) steps each sample by its own error.",
    "scipy.integrate.quad": "ensemble.quadrature.gauss(f, dim, order, p=x) integrates for every sample.",
    "scipy.integrate.trapezoid": "np.trapezoid(y, x) takes ensembles.",
    "scipy.interpolate.interp1d": "np.interp(x, xp, fp) takes ensembles.",
    "scipy.linalg.solve": "np.linalg.solve(A, b) takes ensembles.",
    "scipy.linalg.inv": "np.linalg.inv(A) takes ensembles.",
    "scipy.linalg.det": "np.linalg.det(A) takes ensembles.",
    "scipy.linalg.eigh": "np.linalg.eigh(A) takes ensembles.",
    "scipy.linalg.svd": "np.linalg.svd(A) takes ensembles.",
    "matplotlib.pyplot.hist": "ensemble.plot_histogram(x) draws the samples of a number.",
}  # fmt: skip
"""What to call in place of a function of another library, by its name."""

KRYLOV = ("bicgstab", "cg", "gmres", "minres")

CONSTRUCTORS = ("coo", "csr", "csc", "bsr", "dia", "dok", "lil")

MODULES = {
    "scipy.sparse": f"ensemble.linalg has matrices with samples: CrsMatrix.from_coo(rows, cols, x, shape), {MATRIX}.",
    "scipy.fft": "np.fft takes ensembles.",
    "skfem": "ensemble.apps.fem.from_skfem(basis) assembles, ensemble.linalg.apply_dirichlet and krylov.cg solve.",
    "matplotlib": "Draw x.samples.T (a line per sample), sample_mean(x), or ensemble.plot_ribbon(t, x).",
    "seaborn": "Draw x.samples.T (a line per sample) or sample_mean(x).",
    "pandas": "Use x.samples (the last axis), x.sample(i), or x.to_xarray().",
}
"""The same for all functions of a module that are not named above."""

ASSIGNED = "An array that holds samples comes first: y = ensemble.shared(y).copy(), then y[I] = x."

CONVERTED = (
    "Use x.samples for all samples (the last axis), x.sample(i) for one, or sample_mean(x); "
    "np.stack or xp.asarray makes one ensemble of a list of them."
)


def refusal() -> str:
    """The text of the error where an ensemble is made a plain array."""
    seen, advice = what_to_call() or ("np.asarray(x)", CONVERTED)
    return message("Ensemble", "a conversion to a plain array", "name the samples that it takes", seen, advice)


def what_to_call() -> tuple[str, str] | None:
    """The call or assignment at hand, and what to do instead; None where it is neither known library nor assignment."""
    frame = caller()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("ensemble."):
        frame = frame.f_back
    called = _called(frame)
    if called is None:
        assigns = assigns_entry(frame.f_code, frame.f_lasti)
        return ("an assignment to entries of a plain array", ASSIGNED) if assigns else None
    return f"a call of {called}", _advice(called)


PROTOCOLS.refusal = refusal
PROTOCOLS.what_to_call = what_to_call


def _advice(called: str) -> str:
    name = called.rpartition(".")[2]
    if called.startswith("scipy.sparse.linalg.") and name in KRYLOV:
        return f"ensemble.krylov.{name}(A, b) solves for every sample; A may be a SciPy matrix."
    if called.startswith("scipy.sparse.linalg.") and name.endswith("LinearOperator"):
        return ADVICE["scipy.sparse.linalg.LinearOperator"]
    known = ADVICE.get(called) or ADVICE.get(called.removesuffix("_array"))
    if known is None and called.startswith("scipy.sparse.") and name.partition("_")[0] in CONSTRUCTORS:
        known = MODULES["scipy.sparse"]
    if known is None and not called.startswith("scipy.sparse.linalg."):
        known = next((advice for module, advice in MODULES.items() if called.startswith(f"{module}.")), None)
    return known or "ensemble.run(f, x), where f has this call, makes it once for every sample; so does per_sample(f)."


def _called(frame: FrameType | None) -> str | None:
    """The function of another library that the user's code has called, by its public name."""
    frames: list[tuple[list[str], FrameType]] = []
    while frame is not None:
        parts = str(frame.f_globals.get("__name__", "")).split(".")
        if parts[0] in LIBRARIES:
            frames.insert(0, (parts, frame))
        elif not is_library_frame(frame):
            break
        frame = frame.f_back
    names = [_public_name(parts, frame) for parts, frame in frames]
    return next((name for name in names if name is not None), frames[0][0][0] if frames else None)


def _public_name(parts: list[str], frame: FrameType) -> str | None:
    """``scipy.sparse.linalg.spsolve``, by the shortest module that has it; None for what is private or a wrapper.

    Of a method it is the class of the object.
    """
    owner, _, method = frame.f_code.co_qualname.partition(".")
    name = type(frame.f_locals["self"]).__name__ if method and "self" in frame.f_locals else owner
    if name.startswith("_") or "<locals>" in method:
        return None
    hidden = next((k for k, part in enumerate(parts) if part.startswith("_")), len(parts))
    for length in range(1, hidden + 1):
        path = ".".join(parts[:length])
        if hasattr(sys.modules.get(path), name):
            return f"{path}.{name}"
    return f"{'.'.join(parts[:hidden])}.{name}"
