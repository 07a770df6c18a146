"""Calls with a keyword that a function does not take: one line names it, and what other libraries' names are here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ensemble._check import message

__all__ = ["call_error", "explains_calls", "explains_construction", "require_keywords"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

NAMES: dict[str, str] = {
    # SciPy, PyAMG: solvers
    "tol": "rtol", "tolerance": "rtol", "reltol": "rtol", "abstol": "atol", "eps": "rtol", "maxiter": "max_iterations",
    "max_iter": "max_iterations", "n_iter": "max_iterations", "restrt": "restart", "preconditioner": "M",
    "B": "near_nullspace", "max_coarse": "coarse_size", "presmoother": "smoother", "postsmoother": "smoother",
    "theta": "strength", "which_eigenvalues": "which", "neig": "k", "permc_spec": "ordering", "assume_a": "kind",
    "drop_tol": "drop_tolerance", "diag_pivot_thresh": "matching", "fprime": "jacobian", "jac": "jacobian",
    # SciPy, Julia, diffrax: differential equations
    "args": "p", "params": "p", "parameters": "p", "fun": "f model", "func": "f model", "function": "f model",
    "t_span": "t", "tspan": "t", "u0": "y0", "tcrit": "stops", "hmax": "max_step", "h0": "first_step",
    "mxstep": "max_steps", "maxiters": "max_steps", "saveat": "t_eval", "teval": "t_eval", "dt": "step",
    "dt0": "first_step", "h": "step", "event": "events",
    # statsmodels, pykalman: time series
    "endog": "y", "data": "y", "observations": "y", "missing": "mask", "loglikelihood_burn": "burn",
    "start_params": "start", "p0": "start", "initial_state": "start x0", "steps": "horizon n_steps",
    "nsimulations": "n_steps", "n_periods": "horizon", "repetitions": "n_samples", "exog": "future",
    "transition": "F", "transition_matrices": "F", "design": "H", "observation_matrices": "H", "state_cov": "Q",
    "transition_covariance": "Q", "obs_cov": "R", "observation_covariance": "R", "initial_state_mean": "m0",
    "initial_state_covariance": "P0", "state_intercept": "u", "obs_intercept": "d",
    "P": "P0", "cwd": "folder", "env": "environment", "blocksize": "block_size",
    # NumPy, SALib, emcee: samples, statistics, studies
    "N": "n", "n_samples": "n", "num_samples": "n", "nsamples": "n", "size": "n n_samples", "samples": "n",
    "rng": "seed", "random_state": "seed", "key": "seed", "problem": "inputs", "distributions": "inputs",
    "n_jobs": "executor", "workers": "executor", "pool": "executor", "batch_size": "ensemble_size",
    "chunk_size": "ensemble_size", "verbose": "progress", "disp": "progress", "show_progress": "progress",
    "print_to_console": "progress", "timeout": "sample_seconds", "cache": "store", "checkpoint": "store",
    "device": "backend", "calc_second_order": "pairs", "conf_level": "level", "confidence_level": "level",
    "confidence": "level", "num_levels": "n_levels", "order": "degree", "nwalkers": "n_chains", "chains": "n_chains",
    "draws": "n_steps", "nsteps": "n_steps", "tune": "burn_in", "warmup": "burn_in", "discard": "burn_in",
    "log_prob_fn": "log_likelihood", "interpolation": "method", "correction": "ddof", "criterion": "target",
    # SciPy's quadrature, JAX's loops
    "deg": "n_nodes", "ranges": "bounds", "limits": "bounds", "cond_fun": "active", "body_fun": "body",
    "init_val": "state", "pred": "m", "true_fun": "f", "false_fun": "g",
}  # fmt: skip
"""Names that arguments have in other libraries, and the names that they may have here, the likeliest first."""

ADVICE = {
    "alpha": ("level", "level is 1 - alpha."),
    "axis": (None, "Statistics over samples have no axis; x.mean(axis) and x.std(axis) are over an axis of the array."),
    "callback_type": ("callback", "callback(iteration, residual_norms) is called after each iteration."),
    "dense_output": ("t_eval", "Give t_eval the times of output."),
    "full_output": (None, "The result has status, iterations or steps of each sample."),
    "jac": ("t_eval", "Derivatives are found from f itself."),
    "Dfun": ("t_eval", "Derivatives are found from f itself."),
    "vectorized": ("t_eval", "f is always called for all samples at once."),
    "num_resamples": ("level", "Errors come from replicates of the sampler, not from resampling."),
    "signature": (None, "vectorize calls the model once per sample, with plain numbers or arrays."),
    "otypes": (None, "vectorize calls the model once per sample; types are those that it returns."),
    "excluded": (None, "Arguments that are no ensembles are the same for all samples."),
    "optimal_trajectories": ("n_levels", "Trajectories are drawn at random; n is their number."),
    "return_eigenvectors": ("which", "The result has both values and vectors."),
}  # fmt: skip
"""What has no name of its own here: the argument that a function has which the advice is for, and the advice."""


def advice_for(keyword: str, known: list[str]) -> str:
    """What to write instead of `keyword` in a call of a function with arguments `known`."""
    place, advice = ADVICE.get(keyword, ("", ""))
    if advice and (place is None or place in known):
        return advice
    for name in NAMES.get(keyword, "").split():
        if name in known:
            return f"Use {name}."
    import difflib  # takes milliseconds

    close = difflib.get_close_matches(keyword, known, 1, 0.7)
    return f"Use {close[0]}." if close else f"Arguments: {', '.join(known)}."


def call_error(
    function: Callable[..., Any], name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> TypeError | None:
    """The error of a call that does not fit the signature of `function`; None where it fits."""
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        kinds = inspect.Parameter
        parameters = [p for p in signature.parameters.values() if p.name != "self"]
        known = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
        free = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
        unknown = [key for key in keywords if key not in known]
        if free:  # others may be what the function passes on
            unknown = [key for key in unknown if set(NAMES.get(key, "").split()) & set(known) - set(keywords)]
        if unknown:
            advice = advice_for(unknown[0], known)
            return TypeError(message(name, "a keyword", "be one of its arguments", f"{unknown[0]}", advice))
        given = [p.name for p in parameters if p.kind is kinds.POSITIONAL_OR_KEYWORD]
        if str(error).startswith("too many positional") and len(given) < len(known):
            seen = f"{len(arguments)} arguments without names"
            advice = f"Give others by name: {', '.join(one for one in known if one not in given)}."
            return TypeError(message(name, "arguments", f"be {', '.join(given)}, others by keyword", seen, advice))
        return TypeError(f"{name}: {error}.")
    return None


def require_keywords(function: Any, keywords: Mapping[str, Any], name: str, options: list[str]) -> None:
    """Raise TypeError for a keyword that is neither one of the `options` of `name` nor an argument of `function`.

    Functions whose code takes any keyword, and callables without code of Python, are left to their own calls.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for key in keywords:
        if key not in known:
            advice = advice_for(key, [*options, *known])
            raise TypeError(message(name, "a keyword", "be an argument of f or an option", f"{key}", advice))


def explains_calls(name: str) -> Callable[[F], F]:
    """Decorate a public function, `name` in its messages, so that an unknown keyword is named with what to use.

    Nothing is checked before a call fails; the messages of the function itself stay.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            except TypeError:
                error = call_error(function, name, arguments, keywords)
                if error is None:
                    raise
            raise error

        # `wraps` gives it the signature, which mypy does not see
        return called  # type: ignore[return-value]

    return decorate


def explains_construction(name: str) -> Callable[[C], C]:
    """Decorate a class so that its construction explains calls, as `explains_calls` does for a function."""

    def decorate(made: C) -> C:
        # mypy refuses to write to __init__ of a class: subclasses may take other arguments, which have their own
        made.__init__ = explains_calls(name)(made.__init__)  # type: ignore[misc]
        return made

    return decorate
