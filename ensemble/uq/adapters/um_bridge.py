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
from ensemble._check import integer, kind_of, message, require
from ensemble._errors import kept
from ensemble._optional import optional
from ensemble.scalar import Ensemble
from ensemble.uq.adapters.array_function import ArrayFunction
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.study.outputs import OutputError, Raised

__all__ = ["UmBridgeModel", "from_um_bridge", "serve_um_bridge", "to_um_bridge"]

MOST_TEXT = 300
"""Letters of a server's answer that a message repeats."""


def asked(url: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of a server, to a question of the protocol.

    Raises ConnectionError where there is no server, and RuntimeError with its address, status and text where it
    answers by an error, or not as the protocol has it.
    """
    requests = optional("requests", "from_um_bridge")
    address = f"{url.rstrip('/')}/{what}"
    try:
        response = requests.get(address) if body is None else requests.post(address, json=body)
    except requests.exceptions.RequestException as error:
        text = message("from_um_bridge", "url", "be that of a running server", f"{url!r} ({type(error).__name__})")
        raise ConnectionError(text) from error
    try:
        found = response.json()
    except ValueError:  # a page or a line of text, as servers send when their model raises
        found = None
    told = found.get("error") if isinstance(found, dict) else response.text
    if response.status_code >= 400 or told or not isinstance(found, dict):
        if isinstance(told, dict):
            told = f"{told.get('type', 'error')}: {told.get('message', '')}"
        name = "" if body is None else f" of model {body['name']!r}"
        said = " ".join(str(told or response.text).split())[:MOST_TEXT] or "no text"
        seen = f"status {response.status_code} from {address}{name}: {said}"
        raise RuntimeError(message("from_um_bridge", "the server", "answer by the protocol of UM-Bridge", seen))
    return found


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
        self.input_sizes = list(self._asked("InputSizes", "inputSizes"))
        self.output_sizes = list(self._asked("OutputSizes", "outputSizes"))
        default = ["y"] if len(self.output_sizes) == 1 else [f"y{k}" for k in range(len(self.output_sizes))]
        self.outputs = tuple(outputs or default)
        wanted = f"name the {len(self.output_sizes)} vectors that the server gives"
        require(len(self.outputs) == len(self.output_sizes), "from_um_bridge", "outputs", wanted, list(self.outputs))

    def _asked(self, what: str, key: str, **more: Any) -> Any:
        """Ask the server about its model; return the entry `key` of the answer."""
        return asked(self.url, what, {"name": self.name, "config": self.config, **more})[key]

    def __call__(self, x: Any) -> dict[str, Ensemble]:
        """One request per sample; a sample whose request fails has failed."""
        rows = self._rows(x)
        results: list[Any] = [None] * len(rows)

        def request(place: int) -> None:
            try:
                results[place] = self._asked("Evaluate", "output", input=self._vectors(rows[place]))
            except Exception as error:
                results[place] = kept(error)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(request, range(len(rows))))
        outputs = {}
        for place, found in enumerate(results):
            if isinstance(found, Exception):
                mask = np.zeros(len(rows), bool)
                mask[place] = True
                x.fail(mask, Raised(found))
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
    """Return a model on a server of UM-Bridge, for `propagate` and all that takes a model.

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
        If requests is not installed; umbridge installs it.
    ConnectionError
        If there is no server at the address.
    RuntimeError
        If the server answers by an error: its address, status and text. A sample whose request fails in this way has
        failed, with that reason.
    ValueError
        If the server has no such model, or another number of outputs.
    """
    integer(workers, "from_um_bridge", "workers", minimum=1)
    answer = asked(url, "Info")
    version, known = answer.get("protocolVersion"), answer.get("models", [])
    require(version == 1.0, "from_um_bridge", "url", "be a server of protocol version 1.0", version)
    require(name in known, "from_um_bridge", "name", f"be one of {', '.join(known)}", repr(name))
    return UmBridgeModel(url, name, inputs, outputs, config or {}, workers)


def to_um_bridge(
    model: Callable[[Any], Any], inputs: Inputs, outputs: Sequence[str] | None = None, *, name: str = "forward"
) -> Any:
    """Return a model for a server of UM-Bridge: ``serve_um_bridge([to_um_bridge(model, inputs)], 4242)``.

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
    umbridge = optional("umbridge", "to_um_bridge")
    function = ArrayFunction(model, inputs, outputs)
    sizes = list(function.sizes.values())
    out = [max(1, int(np.prod(function.shapes[key]))) for key in function.outputs]

    class Served(umbridge.Model):  # type: ignore[misc, name-defined]
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


def serve_um_bridge(models: Sequence[Any], port: int = 4242, *, host: str = "127.0.0.1", max_workers: int = 1) -> None:
    """Serve models by the protocol of UM-Bridge, to programs of this machine alone unless `host` is another address.

    ``umbridge.serve_models`` listens on all interfaces: whoever reaches the machine can run the models. The protocol
    has neither passwords nor encryption.

    Parameters
    ----------
    models : sequence of umbridge.Model
        Models of `to_um_bridge`, or others.
    port : int, from 1 to 65535
    host : str
        The address to listen at; ``"0.0.0.0"`` is all interfaces.
    max_workers : int, at least 1
        Requests that are worked on at a time.

    Raises
    ------
    ImportError
        If umbridge is not installed.
    ValueError, TypeError
        If an argument is out of range.
    OSError
        If the port is in use.
    """
    integer(max_workers, "serve_um_bridge", "max_workers", minimum=1)
    require(
        integer(port, "serve_um_bridge", "port", minimum=1) < 2**16, "serve_um_bridge", "port", "be below 65536", port
    )
    if not isinstance(host, str):
        raise TypeError(message("serve_um_bridge", "host", "be an address", kind_of(host)))
    umbridge = optional("umbridge.um", "serve_um_bridge")
    web = optional("aiohttp.web", "serve_um_bridge")

    # The library's function makes the application and runs it in one step, without an address: it gets a module whose
    # function to run adds that, in place of its own for as long as it makes the application.
    class AtHost:
        def __getattr__(self, name: str) -> Any:
            return getattr(web, name)

        def run_app(self, app: Any, **options: Any) -> None:
            umbridge.web = web
            web.run_app(app, **{**options, "host": host})

    umbridge.web = AtHost()
    try:
        umbridge.serve_models(list(models), port=port, max_workers=max_workers)
    finally:
        umbridge.web = web
