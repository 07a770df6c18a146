"""CUDA kernels of forms: compiled without a GPU, run on the CPU, and run on a device where there is one."""

import collections
import importlib
import itertools
import re

import numpy as np
import pytest

from ensemble._compile.cuda import Layout
from ensemble._kernels.fem import form_cuda
from ensemble._kernels.fem import forms as form_kernels
from ensemble._kernels.fem.form_plan import Element
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu, nvrtc
from tests.apps.fem.form_problems import (
    CASES,
    advection,
    cases,
    diffusion,
    elasticity,
    emulate,
    emulated,
    fan,
    laplace,
    mass,
    mesh_of,
    momentum,
    tensor_diffusion,
    terms_of,
    values_of,
)  # fmt: skip

assembly = importlib.import_module("ensemble.apps.fem.assembly")


@pytest.fixture(scope="module")
def mesh():
    return mesh_of()


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize(
    ("k", "n_samples"),
    [pytest.param(k, n, marks=[pytest.mark.slow] * ((k + n) % 2)) for k in CASES for n in (1, 6)],  # half of them
)
def test_device_code_gives_the_values_of_the_cpu(mesh, k, n_samples, monkeypatch):
    agrees_with_the_cpu(mesh, k, n_samples, monkeypatch)


def agrees_with_the_cpu(mesh, k, n_samples, monkeypatch):
    form, fields = cases(mesh, np.random.default_rng(557), n_samples)[k]
    expected = values_of(form.assemble(mesh, **fields))
    emulate(monkeypatch)
    got = values_of(form.assemble(mesh, **fields))
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-15 * abs(expected).max())


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize("k", [6, pytest.param(10, marks=pytest.mark.slow)])
def test_packs_in_shared_memory_are_aligned(mesh, k, monkeypatch):
    """Blocks of odd numbers of pairs, with odd numbers of factors each."""
    agrees_with_the_cpu(mesh, k, 32, monkeypatch)


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize(
    "k, n_samples", [(6, 32), (9, 1), (11, 2), (15, 32), pytest.param(0, 1, marks=pytest.mark.slow)]
)
def test_nodes_of_many_elements_take_several_passes(k, n_samples, monkeypatch):
    many = fan(300)
    monkeypatch.setattr(form_cuda, "MOST_BYTES", 24 << 10)
    monkeypatch.setattr(form_cuda, "SHARED_BYTES", 24 << 10)
    assert fem.LinearSpace(many).tables(2).gather.longest == 300
    agrees_with_the_cpu(many, k, n_samples, monkeypatch)


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
def test_forms_that_share_nothing_are_kernels_of_their_own(mesh, monkeypatch):
    rng = np.random.default_rng(557)
    fields = {"kappa": rng.uniform(0.5, 2.0, (mesh.n_elements, 3, 3)), "wind": rng.normal(size=(mesh.n_nodes, 3))}
    forms, kernels = (tensor_diffusion, advection, tensor_diffusion, momentum), []
    expected = fem.assemble(mesh, *forms, **fields)
    for module in (form_kernels, assembly):
        monkeypatch.setattr(module, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", lambda *key: kernels.append(key) or emulated(*key))
    for got, wanted in zip(fem.assemble(mesh, *forms, **fields), expected, strict=True):
        np.testing.assert_array_equal(got.values, wanted.values)
    assert [len(key[0].components) for key in kernels] == [2, 1, 1]
    kernels.clear()
    fem.assemble(mesh, laplace, mass)
    assert [len(key[0].components) for key in kernels] == [2]


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
def test_blocks_of_many_nodes_read_them_from_memory(mesh, monkeypatch):
    """Some blocks fit the few nodes that are staged here, others do not."""
    tables = fem.LinearSpace(mesh).tables(2)
    n_nodes = np.diff(tables.gather.block_nodes(tables.nodes, 64)[1])
    few = int(n_nodes.min()) // 2 * 2 + 2
    assert n_nodes.min() <= few < n_nodes.max()
    monkeypatch.setattr(form_cuda, "node_capacity", lambda source, layout, capacity: few)
    monkeypatch.setattr(form_cuda, "CAPACITIES", (64,))
    agrees_with_the_cpu(mesh, 0, 1, monkeypatch)


def test_a_block_lists_the_nodes_of_its_elements_once(mesh):
    tables = fem.LinearSpace(mesh).tables(2)
    gather = tables.gather
    corners, starts, chosen = gather.block_nodes(tables.nodes, 64)
    for (low, high), (first, last) in zip(
        itertools.pairwise(gather.starts[gather.blocks(64)]), itertools.pairwise(starts), strict=True
    ):
        nodes = chosen[first:last]
        assert np.unique(nodes).size == nodes.size
        np.testing.assert_array_equal(nodes[corners[low:high]], tables.nodes[gather.incidences[low:high] // 4])


def test_blocks_of_rows_carry_no_more_than_their_capacity(mesh):
    gather = fem.LinearSpace(mesh).tables(2).gather
    for capacity in (gather.longest, 64, 256, 10**6):
        bounds = gather.blocks(capacity)
        assert bounds[0] == 0
        assert bounds[-1] == mesh.n_nodes
        assert np.diff(gather.starts[bounds]).max() <= capacity
    starts, source_starts, _, targets = gather.entries(64)
    assert np.array_equal(np.sort(targets), np.arange(targets.size))
    counts = np.diff(source_starts)
    for low, high in itertools.pairwise(starts):
        assert (np.diff(counts[low:high]) <= 0).all()


@pytest.mark.parametrize("k", [0, 8, pytest.param(10, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize("lanes", [(1, 1), (16, 2)])
def test_kernels_compile_for_a_device(mesh, k, lanes, monkeypatch):
    compiler = nvrtc.library()
    if compiler is None:
        pytest.skip("no NVRTC")
    form, fields = cases(mesh, np.random.default_rng(3), 2)[k]
    terms, element = terms_of(form, mesh, monkeypatch, **fields), fem.LinearSpace(mesh).tables(2).element
    text, _, _ = form_cuda.assembly_source(terms, element, Layout("double", *lanes, 0), 40)
    assert b"assemble" in nvrtc.compiled(compiler, text, *form_cuda.OPTIONS)


@pytest.mark.cuda
@pytest.mark.parametrize("k", CASES)
@pytest.mark.parametrize("n_samples", [1, 3, 32, 70])
def test_a_device_gives_the_values_of_the_cpu(k, n_samples):
    import cupy

    mesh = mesh_of((9, 8, 7))
    form, fields = cases(mesh, np.random.default_rng(557), n_samples)[k]
    expected = values_of(form.assemble(mesh, **fields))
    got = values_of(form.assemble(mesh, backend="cupy", **fields))
    np.testing.assert_allclose(cupy.asnumpy(got), expected, rtol=0, atol=2e-14 * abs(expected).max())


FORMS_OF_SAMPLES = ((momentum, "wind"), (diffusion, "kappa"), (elasticity, "mu"))


def has_the_bits_of_its_own_run(mesh, form, name, n_samples, copied):
    """First, middle and last sample of a form against runs with that sample alone, on what `copied` makes of arrays."""
    rng = np.random.default_rng(8)
    shape = (mesh.n_nodes, 3) if name == "wind" else (mesh.n_elements,)
    values, more = rng.uniform(1, 2, (*shape, n_samples)), {"kappa": 1.0} if form is elasticity else {}
    together = form.assemble(mesh, **{name: Ensemble(copied(values))}, **more).values
    for i in (0, n_samples // 2, n_samples - 1):
        own = form.assemble(mesh, **{name: copied(np.ascontiguousarray(values[..., i]))}, **more).values
        assert own.shape == (*together.shape[:-1], 1)
        assert bool((own[..., 0] == together[..., i]).all())


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize(("form", "name"), FORMS_OF_SAMPLES)
def test_a_sample_has_the_bits_of_its_own_run(mesh, form, name, monkeypatch):
    """One sample reads nodes that are staged, several read them from memory."""
    emulate(monkeypatch)
    has_the_bits_of_its_own_run(mesh, form, name, 40, np.asarray)


@pytest.mark.cuda
@pytest.mark.parametrize(("form", "name"), FORMS_OF_SAMPLES)
def test_a_sample_on_a_device_has_the_bits_of_its_own_run(form, name):
    import cupy

    has_the_bits_of_its_own_run(mesh_of((9, 8, 7)), form, name, 40, cupy.asarray)


@pytest.mark.parametrize(("form", "name"), FORMS_OF_SAMPLES)
def test_one_sample_takes_the_operations_of_many(mesh, form, name, monkeypatch):
    """Products and sums are rounded one by one, so that equal operations give equal bits."""
    compiler = nvrtc.library()
    if compiler is None:
        pytest.skip("no NVRTC")
    shape = (mesh.n_nodes, 3) if name == "wind" else (mesh.n_elements,)
    more = {"kappa": 1.0} if form is elasticity else {}
    operations = []
    for samples, lanes in ((), 1), ((40,), 8):
        values = np.ones((*shape, *samples))
        terms = terms_of(form, mesh, monkeypatch, **{name: Ensemble(values) if samples else values}, **more)
        element = fem.LinearSpace(mesh).tables(2).element
        text, _, _ = form_cuda.assembly_source(terms, element, Layout("double", lanes, 1, 0), 24)
        ptx = nvrtc.compiled(compiler, text, *form_cuda.OPTIONS, kind="PTX").decode()
        operations.append(collections.Counter(re.findall(r"\b([a-z]+)\.(?:[a-z]+\.)*f64\s", ptx)))
    for kind in ("add", "sub", "mul", "rcp", "div", "neg"):
        assert operations[0][kind] == operations[1][kind]
    assert all(found["mul"] and not found["fma"] for found in operations)


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize("most", [1536, 3072])
def test_rows_that_need_much_shared_memory_take_fewer_samples_at_a_time(mesh, most, monkeypatch):
    form, fields = cases(mesh, np.random.default_rng(557), 16)[11]
    expected = values_of(form.assemble(mesh, **fields))
    layouts = []

    def recorded(terms, element, layout, longest):
        layouts.append(layout)
        return emulated(terms, element, layout, longest)

    monkeypatch.setattr(form_cuda, "MOST_BYTES", most * mesh_longest(mesh) // 8)
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", recorded)
    got = values_of(form.assemble(mesh, **fields))
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-15 * abs(expected).max())
    assert all(layout.lanes * layout.vector < 16 for layout in layouts)


def mesh_longest(mesh):
    return fem.LinearSpace(mesh).tables(2).gather.longest


def test_every_kind_of_element_fits_a_block(mesh, monkeypatch):
    """Vector forms with quadrature of 32 samples, on elements of up to 27 functions."""
    form, fields = cases(mesh, np.random.default_rng(557), 2)[11]
    terms = terms_of(form, mesh, monkeypatch, **fields)
    for functions, points, longest in ((4, 11, 40), (10, 11, 40), (8, 8, 8), (27, 27, 8)):
        element = Element(functions, points, 3, False)
        layout = form_cuda.fitting_layout(terms, element, Layout("double", 16, 2, 1), longest, 32)
        _, capacity, shared = form_cuda.assembly_source(terms, element, layout, longest)
        assert capacity >= min(longest, form_cuda.ORDINARY) and shared <= form_cuda.MOST_BYTES
        assert layout.tiles * layout.lanes * layout.vector >= 32
    with pytest.raises(ValueError, match="form: an element must need at most 98304 bytes of shared memory on a device"):
        form_cuda.fitting_layout(terms, Element(40000, 27, 3, False), layout, 8, 32)
