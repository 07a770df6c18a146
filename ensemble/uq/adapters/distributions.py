"""Distributions of other packages as inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import kind_of, message, require

__all__ = ["from_chaospy", "from_openturns"]


class Inverse:
    """A distribution by the inverse of its distribution function, which takes a vector of probabilities."""

    def __init__(self, distribution: Any, inverse: str) -> None:
        self.distribution, self.inverse = distribution, inverse

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.distribution})"

    def ppf(self, u: Any) -> np.ndarray:
        """Values at probabilities `u`, of the same shape."""
        probabilities = np.asarray(u, np.float64)
        values = getattr(self.distribution, self.inverse)(probabilities.reshape(-1).tolist())
        return np.asarray(values, np.float64).reshape(probabilities.shape)


def from_chaospy(distribution: Any) -> Inverse:
    """Return a distribution of one number of chaospy as an input.

    Parameters
    ----------
    distribution : chaospy.Distribution, of length 1

    Returns
    -------
    object
        With ``ppf(u)``, as `Inputs` takes it.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or of several numbers.

    Examples
    --------
    >>> import chaospy
    >>> import ensemble as en
    >>> inputs = en.Inputs(load=from_chaospy(chaospy.Uniform(2.0, 4.0)))
    >>> inputs.from_uniform([[0.25]]).sample(0).load
    2.5
    """
    if not callable(getattr(distribution, "inv", None)):
        raise TypeError(message("from_chaospy", "distribution", "be of chaospy", kind_of(distribution)))
    one_number("from_chaospy", len(distribution))
    return Inverse(distribution, "inv")


def from_openturns(distribution: Any) -> Inverse:
    """Return a distribution of one number of OpenTURNS as an input, as `from_chaospy` of chaospy.

    Parameters
    ----------
    distribution : openturns.Distribution, of dimension 1

    Examples
    --------
    >>> import openturns
    >>> import ensemble as en
    >>> inputs = en.Inputs(load=from_openturns(openturns.Uniform(2.0, 4.0)))
    >>> inputs.from_uniform([[0.25]]).sample(0).load
    2.5
    """
    if not callable(getattr(distribution, "computeQuantile", None)):
        seen = kind_of(distribution)
        raise TypeError(message("from_openturns", "distribution", "be of OpenTURNS", seen))
    one_number("from_openturns", distribution.getDimension())
    return Inverse(distribution, "computeQuantile")


def one_number(function: str, dimension: int) -> None:
    """Raise unless a distribution has one dimension."""
    advice = "Give each marginal by its name, and the dependence by Inputs(correlation=...)."
    require(dimension == 1, function, "distribution", "be of one number", f"{dimension} numbers", advice)
