"""`EnsembleTrait`: the samples of a plain number and of an ensemble by one interface."""

from __future__ import annotations

from typing import Any

from ensemble.scalar.ensemble import Ensemble

__all__ = ["EnsembleTrait"]


class EnsembleTrait:
    """What generic code needs to loop over the samples of a value (Fig. 7 of Phipps et al. [1]_).

    A plain value counts as one sample that all others share.

    Parameters
    ----------
    x : Ensemble, array or number
        An example of the values to come.

    Attributes
    ----------
    n_samples : int
        The samples of `x`; 1 for a plain value.
    value_type : type
        What one coefficient is: the base library's array type for an ensemble, the type of `x` itself otherwise.

    References
    ----------
    .. [1] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39(2), C162-C193, fig. 7.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([1.0, 4.0, 9.0]))
    >>> trait = EnsembleTrait(x)
    >>> [float(trait.coeff(x, i)) for i in range(trait.n_samples)]
    [1.0, 4.0, 9.0]
    >>> EnsembleTrait.coeff(2.5, 1)
    2.5
    """

    __slots__ = ("n_samples", "value_type")

    def __init__(self, x: Any) -> None:
        lifted = isinstance(x, Ensemble)
        self.n_samples: int = x.n_samples if lifted else 1
        self.value_type: type = type(x.samples) if lifted else type(x)

    def __repr__(self) -> str:
        return f"EnsembleTrait(value_type={self.value_type.__name__}, n_samples={self.n_samples})"

    @staticmethod
    def coeff(x: Any, i: int) -> Any:
        """Sample `i` of `x`; a plain value, whatever `i` is."""
        return x.sample(i) if isinstance(x, Ensemble) else x
