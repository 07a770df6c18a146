"""UM-Bridge [1]_: models on its servers as models of a study, and models of this library on its servers.

References
----------
.. [1] Seelinger, Cheng-Seelinger, Davis, Parno, Reinarz (2023), Journal of Open Source Software 8(83), 4748.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import integer, message, require
from ensemble._errors import kept
from ensemble.scalar import Ensemble
from ensemble.uq.adapters.array_function import ArrayFunction
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.study.outputs import OutputError

__all__ = ["UmBridgeModel", "from_um_bridge", "to_um_bridge"]


class UmBridgeModel:
    """A model on a server of UM-Bridge as a model of a study. Made by `from_um_bridge`.

    Attributes
    ----------
    input_sizes, output_sizes : list of int
        Lengths of the vectors that the server takes and gives.
    """

    def __init__(
        self, url: str, name: str, inputs: Sequence[str] | None, outputs: Sequence[str] | None,
        config: Mapping[str, Any], workers: int,
    ) -> None:  # fmt: skip
        self.url, self.name, self.config, self.workers = url, name, dict(config), workers
        self.inputs = None if inputs is None else tuple(inputs)
        self._client: Any = None
        self.input_sizes = list(self.client.get_input_sizes(self.config))
        self.output_sizes = list(self.client.get_output_sizes(self.config))
        default = ["y"] if len(self.output_sizes) == 1 else [f"y{k}" for k in range(len(self.output_sizes))]
        self.outputs = tuple(outputs or default)
        wanted = f"name the {len(self.output_sizes)} vectors that the server gives"
        require(len(self.outputs) == len(self.output_sizes), "from_um_bridge", "outputs", wanted, list(self.outputs))

    @property
    def client(self) -> Any:
        """The connection, made anew in other processes."""
        if self._client is None:
            import umbridge

            self._client = umbridge.HTTPModel(self.url, self.name)
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def __call__(self, x: Any) -> dict[str, Ensemble]:
        """One request per sample; a sample whose request fails has failed."""
        rows = self._rows(x)
        results: list[Any] = [None] * len(rows)

        def request(place: int) -> None:
            try:
                results[place] = self.client(self._vectors(rows[place]), self.config)
            except Exception as error:
                results[place] = kept(error)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(request, range(len(rows))))
        outputs = {}
        for place, found in enumerate(results):
            if isinstance(found, Exception):
                mask = np.zeros(len(rows), bool)
                mask[place] = True
                x.fail(mask, f"{type(found).__name__}: {found}")
        for k, (name, size) in enumerate(zip(self.outputs, self.output_sizes, strict=True)):
            blank = [np.nan] * size
            values = np.array([blank if isinstance(f, Exception) else f[k] for f in results], np.float64).T
            outputs[name] = Ensemble(np.ascontiguousarray(values[0] if size == 1 else values))
        return outputs

    def _rows(self, x: Any) -> np.ndarray:
        """The numbers of each sample, (n_samples, total)."""
        parts = []
        for name in self.inputs or x.names:
            value = x[name]
            array = to_numpy((value if isinstance(value, Ensemble) else value.coefficients).samples)
            array = np.broadcast_to(array, (*array.shape[:-1], x.n_samples))
            parts.append(array.reshape(-1, x.n_samples))
        rows = np.concatenate(parts).T
        wanted = f"have {sum(self.input_sizes)} numbers, the vectors {self.input_sizes} of the server"
        if rows.shape[1] != sum(self.input_sizes):
            raise OutputError(message("from_um_bridge", "the inputs", wanted, rows.shape[1]))
        return rows

    def _vectors(self, row: np.ndarray) -> list[list[float]]:
        ends = np.cumsum([0, *self.input_sizes])
        return [row[a:b].tolist() for a, b in pairwise(ends)]


def from_um_bridge(
    url: str,
    name: str = "forward",
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    workers: int = 1,
) -> UmBridgeModel:
    """A model on a server of UM-Bridge, for `propagate` and all that takes a model.

    Parameters
    ----------
    url : str
        Address of the server, for instance ``"http://localhost:4242"``.
    name : str
        Name of the model on the server.
    inputs : sequence of str, optional
        Which inputs fill the server's vectors, one after the other. Default: all, in their order.
    outputs : sequence of str, optional
        Names of the vectors that the server gives. Default: "y", or "y0", "y1", ...
    config : mapping, optional
        Passed on to the server.
    workers : int, at least 1
        Requests at a time.

    Returns
    -------
    UmBridgeModel

    Raises
    ------
    ImportError
        If umbridge is not installed.
    ConnectionError
        If there is no server at the address.
    ValueError
        If the server has no such model, or another number of outputs.
    """
    integer(workers, "from_um_bridge", "workers", minimum=1)
    import requests
    import umbridge

    try:
        known = umbridge.supported_models(url)
    except requests.exceptions.RequestException as error:
        text = message("from_um_bridge", "url", "be that of a running server", f"{url!r} ({type(error).__name__})")
        raise ConnectionError(text) from error
    require(name in known, "from_um_bridge", "name", f"be one of {', '.join(known)}", repr(name))
    return UmBridgeModel(url, name, inputs, outputs, config or {}, workers)


def to_um_bridge(
    model: Callable[[Any], Any], inputs: Inputs, outputs: Sequence[str] | None = None, *, name: str = "forward"
) -> Any:
    """A model for a server of UM-Bridge: ``umbridge.serve_models([to_um_bridge(model, inputs)], 4242)``.

    Parameters
    ----------
    model, inputs, outputs
        As in `ArrayFunction`. Each input is a vector of the protocol, and each output; constants are left out.
    name : str

    Returns
    -------
    umbridge.Model
        It evaluates one sample a request, as the protocol has it.

    Raises
    ------
    ImportError
        If umbridge is not installed.
    TypeError, ValueError
        As `ArrayFunction`.
    """
    import umbridge

    function = ArrayFunction(model, inputs, outputs)
    sizes = list(function.sizes.values())
    out = [max(1, int(np.prod(function.shapes[key]))) for key in function.outputs]

    class Served(umbridge.Model):  # type: ignore[misc]
        def get_input_sizes(self, config: Any) -> list[int]:
            return sizes

        def get_output_sizes(self, config: Any) -> list[int]:
            return out

        def supports_evaluate(self) -> bool:
            return True

        def __call__(self, parameters: Any, config: Any) -> list[list[float]]:
            values = function([[number for vector in parameters for number in vector]])[0]
            if not np.all(np.isfinite(values)):
                raise ArithmeticError(f"{name}: the model failed at {parameters}")
            ends = np.cumsum([0, *out])
            return [values[a:b].tolist() for a, b in pairwise(ends)]

    return Served(name)
