"""Symmetric forms of many samples on a device: elements once a block, run on the CPU and compiled without a GPU."""

import numpy as np
import pytest

from ensemble._compile.cuda import Layout
from ensemble._kernels.fem import form_symmetric
from ensemble._kernels.fem.symmetric_blocks import symmetric_blocks
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu, nvrtc
from tests.apps.fem.form_problems import (
    advection,
    diffusion,
    elasticity,
    emulate,
    fan,
    laplace,
    mass,
    mesh_of,
    samples,
    tensor_diffusion,
    terms_of,
    values_of,
)  # fmt: skip

needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")


@fem.bilinear_form
def reaction(u, v, w):
    """A field as it is, and a product of two."""
    return w.kappa * w.rho * fem.dot(fem.grad(u), fem.grad(v)) + (3.7 * w.rho + 1.0) * u * v


@fem.bilinear_form
def two_fields(u, v, w):
    """Two fields as they are."""
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v)) + 0.3 * w.rho * u * v


@fem.bilinear_form(trial="vector", test="vector")
def vector_mass(u, v, w):
    """Blocks of which some are zero."""
    return w.rho * fem.dot(u, v)


@fem.bilinear_form
def halved(u, v, w):
    """A factor that does not round."""
    return 0.5 * w.kappa * fem.dot(fem.grad(u), fem.grad(v))


@fem.bilinear_form
def scaled(u, v, w):
    """A factor that rounds before one of the derivatives."""
    return 0.3 * w.kappa * fem.dot(fem.grad(u), fem.grad(v))


def fields_of(form, mesh, n_samples, seed=8):
    """Coefficients of a form, per element."""
    rng, names = np.random.default_rng(seed), {"kappa", "rho"} & set(form.integrand.__code__.co_names)
    return {name: samples(rng, n_samples, mesh.n_elements) for name in sorted(names)}


FORMS = (diffusion, halved, reaction, two_fields, vector_mass)


@needs_compiler
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("n_samples", [32, 17])
def test_entries_have_the_bits_of_the_kernel_of_any_form(form, n_samples, monkeypatch):
    mesh = mesh_of((5, 4, 4))
    fields, used = fields_of(form, mesh, n_samples), []
    expected = values_of(form.assemble(mesh, **fields))
    emulate(monkeypatch)
    monkeypatch.setattr(form_symmetric, "FEWEST_SAMPLES", 1000)
    of_pairs = values_of(form.assemble(mesh, **fields))
    np.testing.assert_allclose(of_pairs, expected, rtol=0, atol=2e-15 * abs(expected).max())
    monkeypatch.setattr(form_symmetric, "FEWEST_SAMPLES", 16)
    kernel = form_symmetric._kernel
    monkeypatch.setattr(form_symmetric, "_kernel", lambda *key: used.append(key) or kernel(*key))
    np.testing.assert_array_equal(values_of(form.assemble(mesh, **fields)), of_pairs)
    assert len(used) == 1


@needs_compiler
def test_one_number_a_sample_and_two_forms_in_one_pass(monkeypatch):
    mesh, kappa = mesh_of((4, 3, 3)), samples(np.random.default_rng(3), 32)
    forms = diffusion, mass
    expected = [values_of(matrix) for matrix in fem.assemble(mesh, *forms, kappa=kappa)]
    emulate(monkeypatch)
    for got, wanted in zip(fem.assemble(mesh, *forms, kappa=kappa), expected, strict=True):
        np.testing.assert_allclose(values_of(got), wanted, rtol=0, atol=2e-15 * abs(wanted).max())


@needs_compiler
@pytest.mark.parametrize("n_cells", [1, 2])
def test_nodes_that_share_unknowns(n_cells, monkeypatch):
    """Unknowns that stand twice in an element, too."""
    mesh = fem.TetMesh.box((n_cells, 3, 3))
    space = fem.LinearSpace(mesh, fem.periodic(mesh, 0))
    kappa = samples(np.random.default_rng(3), 32, mesh.n_elements)
    expected = values_of(diffusion.assemble(space, kappa=kappa))
    emulate(monkeypatch)
    got = values_of(diffusion.assemble(space, kappa=kappa))
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-15 * abs(expected).max())


@needs_compiler
def test_rows_of_many_elements_go_to_the_other_kernel(monkeypatch):
    mesh = fan(300)
    kappa = samples(np.random.default_rng(3), 32, mesh.n_elements)
    expected = values_of(diffusion.assemble(mesh, kappa=kappa))
    emulate(monkeypatch)
    monkeypatch.setattr(form_symmetric, "_kernel", None)
    got = values_of(diffusion.assemble(mesh, kappa=kappa))
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-15 * abs(expected).max())


@pytest.mark.parametrize(
    ("form", "symmetric"),
    [(laplace, True), (mass, True), (halved, True), (scaled, False), (advection, False), (tensor_diffusion, False),
     (elasticity, False), (vector_mass, True)],
)  # fmt: skip
def test_symmetric_forms_are_known(form, symmetric, monkeypatch):
    mesh = mesh_of()
    rng = np.random.default_rng(1)
    given = {
        advection: {"wind": samples(rng, 2, mesh.n_nodes, 3)}, elasticity: {"mu": samples(rng, 2), "kappa": 1.5},
        tensor_diffusion: {"kappa": samples(rng, 2, mesh.n_elements, 3, 3)},
    }  # fmt: skip
    terms = terms_of(form, mesh, monkeypatch, **given.get(form, fields_of(form, mesh, 2)))
    assert form_symmetric.is_symmetric(terms, fem.LinearSpace(mesh).tables(2).element) == symmetric


def test_each_block_has_its_elements_once():
    mesh = mesh_of((6, 5, 5))
    tables = fem.LinearSpace(mesh).tables(2)
    capacity = max(64, tables.gather.longest)
    made = symmetric_blocks(tables.gather, tables.unknowns, tables.elements, tables.indptr, tables.slots, capacity)
    sizes = np.diff(made.element_starts)
    assert sizes.max() <= capacity and len(sizes) > 3
    for begin, end in zip(made.element_starts[:-1], made.element_starts[1:], strict=True):
        assert (np.diff(made.elements[begin:end]) > 0).all()
    written = np.concatenate([made.entries[:, 2], made.entries[made.entries[:, 2] != made.entries[:, 3], 3]])
    np.testing.assert_array_equal(np.sort(written), np.arange(tables.indptr[-1]))
    assert made.entries[:, 1].sum() == 10 * mesh.n_elements


@pytest.mark.parametrize("form", [diffusion, reaction, vector_mass], ids=lambda form: form.name)
@pytest.mark.parametrize("lanes", [(16, 2), (17, 1), (4, 2)])
def test_kernels_compile_for_a_device(form, lanes, monkeypatch):
    compiler = nvrtc.library()
    if compiler is None:
        pytest.skip("no NVRTC")
    mesh = mesh_of()
    terms = terms_of(form, mesh, monkeypatch, **fields_of(form, mesh, 2))
    element = fem.LinearSpace(mesh).tables(2).element
    layout = Layout("double", 16 if lanes[0] == 17 else lanes[0], lanes[1], 0)
    text, _ = form_symmetric.symmetric_source(terms, element, layout, 160, 1200)
    assert b"assemble" in nvrtc.compiled(compiler, text, *form_symmetric.OPTIONS)


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("n_samples", [16, 33, 64])
def test_a_device_gives_the_values_of_the_cpu(form, n_samples):
    import cupy

    mesh = mesh_of((9, 8, 7))
    fields = fields_of(form, mesh, n_samples)
    expected = values_of(form.assemble(mesh, **fields))
    there = {name: Ensemble(cupy.asarray(value.samples)) for name, value in fields.items()}
    got = values_of(form.assemble(mesh, backend="cupy", **there))
    np.testing.assert_allclose(cupy.asnumpy(got), expected, rtol=0, atol=2e-14 * abs(expected).max())
    alone = {name: cupy.ascontiguousarray(value.samples[..., 3]) for name, value in there.items()}
    own = values_of(form.assemble(mesh, backend="cupy", **alone))
    assert bool((own[:, 0] == got[:, 3]).all())
