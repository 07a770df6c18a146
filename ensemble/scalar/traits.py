"""`EnsembleTrait`: the samples of a plain number and of an ensemble by one interface."""

from __future__ import annotations

from typing import Any

from ensemble._check import sample_number
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
    ensemble_size, n_samples : int
        The samples of `x`; 1 for a plain value.
    value_type : type
        The type of one number: the dtype's type for an ensemble or an array (``numpy.float64``), the dtype itself in a
        library whose dtypes have none, the type of `x` for a plain number.

    References
    ----------
    .. [1] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39(2), C162-C193, fig. 7.

    Examples
    --------
    The branch of figures 6 and 7 of the paper, sample by sample:

    >>> import numpy as np
    >>> x = Ensemble(np.array([-1.0, 2.0, 3.0]))
    >>> y = Ensemble(np.empty(3))
    >>> trait = EnsembleTrait(x)
    >>> for i in range(trait.ensemble_size):
    ...     xi, yi = trait.coeff(x, i), trait.coeff(y, i)
    ...     if xi > 0:
    ...         yi[...] = xi + xi * xi
    ...     else:
    ...         yi[...] = xi
    >>> y.samples
    array([-1.,  6., 12.])
    >>> trait.value_type.__name__, EnsembleTrait.coeff(2.5, 1)
    ('float64', 2.5)
    """

    __slots__ = ("ensemble_size", "value_type")

    def __init__(self, x: Any) -> None:
        self.ensemble_size: int = x.n_samples if isinstance(x, Ensemble) else 1
        dtype = getattr(x.samples if isinstance(x, Ensemble) else x, "dtype", None)
        self.value_type: Any = type(x) if dtype is None else getattr(dtype, "type", dtype)

    @property
    def n_samples(self) -> int:
        """The samples, by the name that an `Ensemble` has for them."""
        return self.ensemble_size

    def __repr__(self) -> str:
        name = getattr(self.value_type, "__name__", str(self.value_type))
        return f"EnsembleTrait(value_type={name}, ensemble_size={self.ensemble_size})"

    @staticmethod
    def coeff(x: Any, i: int) -> Any:
        """Sample `i` of `x` as a reference: what is assigned to ``coeff(x, i)[...]`` is in `x`.

        The one sample of a shared ensemble is returned for every `i` from 0. A plain array is returned itself, a number
        too, to which nothing can be assigned. Libraries whose arrays cannot be written (JAX) give values.
        """
        if not isinstance(x, Ensemble):
            return x
        return x.samples[..., sample_number(i, x.samples.shape[-1], "EnsembleTrait.coeff", "i")]
