"""Element kernels on tetrahedra on a CUDA device, against the bytes that they must move.

`python -m benchmarks element-kernels-device` checks each kernel against NumPy, then times it between CUDA events on the
mountain mesh: launches that follow each other, on copies of all arrays that no cache holds. Paper-shaped kernels read
or write a copy of the gradients for each of 11 quadrature points, collapsed ones a single copy. Bytes are those of
compulsory reads and writes, where nodes are read once; "copy" is a kernel that reads and writes as many bytes, each
one contiguous array; "gathers" is the time of the sectors of the second-level cache that hold the numbers of the four
nodes of each element, at the rate of gathers that the same run measures. Published times (Fluidity-Atmosphere, Li et
al., on an A100) are of kernels that read coordinates of the corners of each element. Record: `element-kernels-h200`
on an H200, `element-kernels-cuda` elsewhere, with `--order rcm`, nodes in reverse Cuthill-McKee order, the same and
`-rcm`; `--backend numpy` times one thread of the processor: `element-kernels-1threads`.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import SEED, cuda_device, of_device, one_thread, save, show
from benchmarks.device_clock import (
    SECTOR,
    copies_for,
    copy_milliseconds,
    empty_milliseconds,
    gathered_sectors,
    milliseconds_in_turn,
    peak_bandwidth,
)
from benchmarks.mountain import mountain_mesh
from benchmarks.papers.published_atmosphere import VERSIONS
from benchmarks.tensor_stages import STAGES, run_of
from ensemble._backend import array_namespace, asarray_like, prototype, to_numpy
from ensemble._kernels.fem.element import tet_closed_form, tet_edge_lengths, tet_transform, tet_values
from ensemble._kernels.fem.element_matrices import tet_gradient_tensor, tet_shape_dshape, tet_shape_shape
from ensemble.apps import fem

Q = 11
CHECKED = 20_000
"""Elements that are compared with NumPy."""

SAMPLES = 32


class Run(NamedTuple):
    """One kernel: what it computes from inputs with `out`, its bytes, published times (A100), and NumPy's answer.

    `per_node` are the numbers of a node that are gathered for each corner.
    """

    call: Callable[[Any, Any], Any]
    moved: float
    published: float | None
    expected: Callable[[np.ndarray], np.ndarray]
    tolerance: float = 1e-13
    per_node: int = 0


class Inputs:
    """Arrays of the kernels on one device, one sample, and the same on the host for the elements that are checked."""

    def __init__(self, mesh: fem.TetMesh, like: Any) -> None:
        rng = np.random.default_rng(SEED)
        self.mesh, self.like = mesh, like
        self.chosen = np.sort(rng.choice(mesh.n_elements, min(CHECKED, mesh.n_elements), replace=False))
        self.points, self.tets = self.put(mesh.points[..., None]), self.put(mesh.tets)
        self.shape, weights = fem.tetrahedron_rule(4)
        self.weights = self.put(weights)
        self.table, self.ones = self.put(self.shape), self.put(np.ones(1))
        self.quarter = self.put(np.full((1, 4), 0.25))
        self.products = self.put(self.shape[:, :, None] * self.shape[:, None, :])
        self.mass = self.put((np.ones((1, 4, 4)) + np.eye(4)) / 20.0)
        self.fields = {c: self.put(rng.standard_normal((mesh.n_nodes, c, 1))) for c in (1, 3, 9)}
        e = mesh.n_elements
        paper, once = (tet_transform(self.points, self.tets, w, None) for w in (self.weights, self.ones))
        self.dshape, self.detwei = paper[: 12 * Q].reshape(Q, 4, 3, e, 1), paper[12 * Q :].reshape(Q, e, 1)
        self.gradients, self.volume = once[:12].reshape(1, 4, 3, e, 1), once[12:].reshape(1, e, 1)
        self.other = self.dshape.copy()
        self.tensors = self.put(rng.uniform(0.5, 1.0, (Q, 3, 3, e, 1)))
        self.many = self.put(rng.uniform(0.5, 1.0, (1, 3, 3, e, SAMPLES)))

    def put(self, array: np.ndarray) -> Any:
        """`array` where the kernels run."""
        return asarray_like(np.ascontiguousarray(array), self.like)

    def of(self, array: Any) -> np.ndarray:
        """The checked elements of (..., E, S), elements first, samples last."""
        return np.moveaxis(to_numpy(array[..., self.chosen_there, :]), -2, 0)

    @property
    def chosen_there(self) -> Any:
        """The checked elements as an index on the device."""
        return self.put(self.chosen)

    def geometry(self) -> tuple[np.ndarray, np.ndarray]:
        """Gradients and volumes by NumPy's inverse."""
        corners = self.mesh.points[self.mesh.tets[self.chosen]]
        edges = corners[:, 1:] - corners[:, :1]
        g = np.swapaxes(np.linalg.inv(edges), 1, 2)
        return np.concatenate([-g.sum(axis=1, keepdims=True), g], axis=1), np.linalg.det(edges) / 6.0

    def lengths(self) -> np.ndarray:
        """Edge lengths by the metric: six equations and the eigenvalues of their solution."""
        sub = fem.TetArrays(self.mesh.points, self.mesh.tets[self.chosen])
        return np.asarray(fem.edge_lengths(sub, "paper")).reshape(-1, 9)


class Copies:
    """The same inputs in memory of their own; each array is copied when it is first used."""

    def __init__(self, given: Inputs) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._given, name)
        copied = {c: array.copy() for c, array in value.items()} if isinstance(value, dict) else value.copy()
        setattr(self, name, copied)
        return copied


def runs(given: Inputs) -> dict[str, Run]:
    """Every kernel; bytes are per element, but for nodes."""
    e, n = given.mesh.n_elements, given.mesh.n_nodes
    g, volume = given.geometry()
    at_nodes, weights = given.mesh.tets[given.chosen], to_numpy(given.weights)
    found: dict[str, Run] = {}
    for (c, field), name, ms in zip(
        given.fields.items(), ("scalar", "vector", "tensor"), (0.0276, 0.0768, 0.1976), strict=True
    ):
        values = to_numpy(field)[at_nodes].reshape(-1, 4 * c)
        found[f"element_values, {name}"] = Run(
            lambda x, out, c=c: tet_values(x.fields[c], x.tets, out),  # type: ignore[misc]
            (16 + 32 * c) * e + 8 * c * n, ms, lambda got, values=values: values, per_node=c)  # type: ignore[misc]  # fmt: skip
    flat = g.reshape(-1, 12)
    paper = np.concatenate([np.tile(flat, Q), volume[:, None] * weights], axis=1)
    found["transform, paper-shaped"] = Run(
        lambda x, out: tet_transform(x.points, x.tets, x.weights, out),
        (16 + 104 * Q) * e + 24 * n, 3.964, lambda got: paper, per_node=3)  # fmt: skip
    found["transform, collapsed"] = Run(
        lambda x, out: tet_transform(x.points, x.tets, x.ones, out),
        (16 + 104) * e + 24 * n, None, lambda got: np.concatenate([flat, volume[:, None]], axis=1),
        per_node=3)  # fmt: skip
    mass = volume[:, None] * ((np.ones((4, 4)) + np.eye(4)) / 20.0).reshape(16)
    first = np.einsum("e,ejd->edj", volume / 4.0, g)[:, :, None, :].repeat(4, axis=2).reshape(-1, 48)
    calls = {
        "paper-shaped": (Q, 1.012, 1.371, lambda x, out: tet_shape_shape(x.products, x.detwei, out),
                         lambda x, out: tet_shape_dshape(x.table, x.dshape, x.detwei, out)),
        "collapsed": (1, None, None, lambda x, out: tet_shape_shape(x.mass, x.volume, out),
                      lambda x, out: tet_shape_dshape(x.quarter, x.gradients, x.volume, out)),
    }  # fmt: skip
    for kind, (count, ms_mass, ms_first, shape_shape, shape_dshape) in calls.items():
        found[f"shape_shape, {kind}"] = Run(shape_shape, (8 * count + 128) * e, ms_mass, lambda got: mass)
        found[f"shape_dshape, {kind}"] = Run(shape_dshape, (104 * count + 384) * e, ms_first, lambda got: first)
    for name, rows, derivatives, expected in (("shape_shape", 16, False, mass), ("shape_dshape", 48, True, first)):
        found[f"{name}, from points"] = Run(
            lambda x, out, d=derivatives: tet_closed_form(x.points, x.tets, d, out),  # type: ignore[misc]
            (16 + 8 * rows) * e + 24 * n, None, lambda got, x=expected: x, per_node=3)  # type: ignore[misc]  # fmt: skip
    found |= tensor_runs(given, g, volume, weights) | length_runs(given) | stage_runs(given, g, volume, weights)
    return found | metric_runs(given)


def tensor_sums(g: np.ndarray, volume: np.ndarray, weights: np.ndarray, tensors: np.ndarray) -> np.ndarray:
    """What a tensor between gradients gives, by NumPy."""
    return np.einsum("eik,q,qekl,ejl,e->eij", g, weights, tensors, g, volume, optimize=True).reshape(-1, 16)


def stage_runs(given: Inputs, g: np.ndarray, volume: np.ndarray, weights: np.ndarray) -> dict[str, Run]:
    """The stages of the paper's kernel, on a device."""
    if isinstance(given.points, np.ndarray):
        return {}
    e = given.mesh.n_elements
    sums = tensor_sums(g, volume, weights, np.moveaxis(given.of(given.tensors)[..., 0], 1, 0))
    return {
        f"dshape_tensor_dshape, {name}{', two arrays' if two else ''}": Run(
            run_of(k, two), ((272 if two else 176) * Q + 128) * e, VERSIONS[name][two], lambda got: sums)
        for k, name in enumerate(STAGES) for two in (False, True)
    }  # fmt: skip


def tensor_runs(given: Inputs, g: np.ndarray, volume: np.ndarray, weights: np.ndarray) -> dict[str, Run]:
    """Tensors between gradients: of one array or two, of 11 points or one, and of many samples."""
    e = given.mesh.n_elements
    tensors = np.moveaxis(given.of(given.tensors)[..., 0], 1, 0)
    sums = tensor_sums(g, volume, weights, tensors)
    one = np.einsum("eik,ekl,ejl,e->eij", g, tensors[0], g, volume, optimize=True).reshape(-1, 16)
    many = given.of(given.many)[:, 0]
    each = np.einsum("eik,ekls,ejl,e->eijs", g, many, g, volume, optimize=True).reshape(-1, 16 * SAMPLES)
    return {
        "dshape_tensor_dshape, paper-shaped": Run(
            lambda x, out: tet_gradient_tensor(x.dshape, x.tensors, None, x.detwei, out),
            (176 * Q + 128) * e, 1.969, lambda got: sums),
        "dshape_tensor_dshape, paper-shaped, two arrays": Run(
            lambda x, out: tet_gradient_tensor(x.dshape, x.tensors, x.other, x.detwei, out),
            (272 * Q + 128) * e, 3.689, lambda got: sums),
        "dshape_tensor_dshape, collapsed": Run(
            lambda x, out: tet_gradient_tensor(x.gradients, x.tensors[:1], None, x.volume, out),
            (176 + 128) * e, None, lambda got: one),
        f"dshape_tensor_dshape, collapsed, {SAMPLES} samples": Run(
            lambda x, out: tet_gradient_tensor(x.gradients, x.many, None, x.volume, out),
            (104 + SAMPLES * (72 + 128)) * e, None, lambda got: each),
    }  # fmt: skip


def length_runs(given: Inputs) -> dict[str, Run]:
    """Edge lengths, in copies and alone."""
    e, n, lengths = given.mesh.n_elements, given.mesh.n_nodes, given.lengths()
    return {
        f"edge_lengths, {kind}": Run(
            lambda x, out, copies=copies: tet_edge_lengths(x.points, x.tets, copies, out),  # type: ignore[misc]
            (16 + 72 * copies) * e + 24 * n, published,
            lambda got, copies=copies: np.tile(lengths, copies), 1e-11, per_node=3)  # type: ignore[misc]
        for kind, copies, published in (("paper-shaped", Q, 7.476), ("collapsed", 1, None))
    }  # fmt: skip


def metric_runs(given: Inputs) -> dict[str, Run]:
    """Edge lengths as in the paper: six equations and a decomposition for each element, copied to all points."""
    e, n, lengths = given.mesh.n_elements, given.mesh.n_nodes, given.lengths()

    def call(x: Any, out: Any) -> Any:
        made = fem.edge_lengths(fem.TetArrays(x.points[..., 0], x.tets), "paper", copies=Q)
        return array_namespace(made).moveaxis(made, 0, -1)[..., None]

    expected = np.tile(lengths, Q)
    return {"edge_lengths, six equations": Run(call, (16 + 72 * Q) * e + 24 * n, 7.476, lambda got: expected, 1e-9,
                                               per_node=3)}  # fmt: skip


def check(name: str, run: Run, out: Any, given: Inputs) -> None:
    """Raise where a result differs from NumPy's by more than rounding, relative to the largest of its element."""
    here = given.of(out)
    got = here.reshape(len(here), -1)
    expected = run.expected(got)
    size = np.abs(expected).max(axis=1, keepdims=True)
    error = float((np.abs(got - expected) / size).max())
    if not error <= run.tolerance:
        raise AssertionError(f"{name}: the result differs from NumPy's by {error:.1e}")


def device_milliseconds(run: Run, given: Inputs, out: Any, repeats: int) -> float:
    """Median time of launches that follow each other on copies of all arrays."""
    sets = [(Copies(given), out.copy()) for _ in range(copies_for(run.moved))]
    return milliseconds_in_turn([functools.partial(run.call, *each) for each in sets], repeats)


def sectors_of(n_numbers: int) -> float:
    """Sectors that hold the numbers of a node, on average over nodes that lie one behind another."""
    n_bytes = 8 * n_numbers
    starts = [k * n_bytes % SECTOR for k in range(SECTOR // 8)]
    return sum((start + n_bytes - 1) // SECTOR + 1 for start in starts) / len(starts)


def host_milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median processor time of one thread on the CPU."""
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times[1:])


def main() -> None:
    """Check, time, print and keep the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks element-kernels-device", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--cells", type=int, nargs=3, default=(46, 44, 48), help="of the generated box")
    parser.add_argument("--order", default="file", choices=("file", "rcm"), help="of the nodes")
    parser.add_argument("--backend", default="cupy", help="numpy: the kernels of the CPU, on one thread")
    options = parser.parse_args()
    one_thread()
    on_device = options.backend == "cupy"
    mesh = mountain_mesh(tuple(options.cells))
    if options.order == "rcm":
        mesh = mesh.renumbered("rcm")
    bandwidth = peak_bandwidth() if on_device else float("nan")
    rate = gathered_sectors(3 * mesh.n_nodes, options.repeats) if on_device else float("nan")
    given = Inputs(mesh, prototype(options.backend))
    about: dict[str, Any] = {"elements": mesh.n_elements, "nodes": mesh.n_nodes}
    record = "element-kernels-1threads"
    if on_device:
        about |= {**cuda_device(), "sectors per second": rate}
        record = of_device("element-kernels", about["device"]) + ("-rcm" if options.order == "rcm" else "")
        print(f"{about['device']}: {1e-9 * rate:.0f} sectors per ns gathered, {1e-12 * SECTOR * rate:.2f} TB/s")
        empty = {n: empty_milliseconds(n, options.repeats) for n in (1, 1000)}
        print("a launch that does nothing, by blocks, ms:", empty)
        about["empty launch ms"] = empty
    keep = on_device or tuple(options.cells) == (46, 44, 48)
    rows: list[dict[str, Any]] = []
    for name, run in runs(given).items():
        out = run.call(given, None)
        check(name, run, out, given)
        row: dict[str, Any] = {"kernel": name, "MB": run.moved / 1e6}
        if on_device:
            ms = device_milliseconds(run, given, out, options.repeats)
            copy = copy_milliseconds(max(run.moved - out.nbytes, 0), out.nbytes, options.repeats)
            bound = 1e3 * run.moved / bandwidth
            gathers = 4e3 * mesh.n_elements * sectors_of(run.per_node) / rate if run.per_node else 0.0
            row |= {"bound ms": bound, "ms": ms, "fraction": bound / ms, "copy ms": copy, "of the copy": copy / ms,
                    "gathers ms": gathers, "of the larger": max(bound, gathers) / ms}  # fmt: skip
        else:
            ms = host_milliseconds(lambda run=run, out=out: run.call(given, out), options.repeats)  # type: ignore[misc]
            row |= {"ms": ms, "GB/s": 1e-6 * run.moved / ms}
        x = run.published / ms if run.published and on_device else "-"
        rows.append({**row, "A100 published ms": run.published or "-", "x": x})
        del out
        if keep:
            save(record, rows, **about)
    title = f"Element kernels, {mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes"
    show(f"{title}, bound at {1e-12 * bandwidth:.2f} TB/s" if on_device else title, rows)


if __name__ == "__main__":
    main()
