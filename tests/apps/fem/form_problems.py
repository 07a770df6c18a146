"""Forms, meshes and fields that several test modules share."""

import functools

import numpy as np

from ensemble._kernels.fem import form_cuda, form_symmetric
from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu

EXTERN = "extern __shared__ __align__(16) char memory[];"


def mesh_of(cells=(3, 4, 2), seed=51907):
    """A box with inner nodes moved and nodes and elements in random order."""
    return fem.TetMesh.box(cells, lengths=(1.0, 1.5, 0.8), jitter=0.15, seed=seed).renumbered("shuffled", seed=seed)


def fan(n_elements):
    """Elements round an axis of two nodes, each of which has all of them."""
    angle = np.linspace(0.0, 2.0 * np.pi, n_elements, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros(n_elements)], axis=1)
    here = np.arange(n_elements)
    tets = np.stack([np.zeros_like(here), np.ones_like(here), 2 + here, 2 + (here + 1) % n_elements], axis=1)
    return fem.TetMesh(np.concatenate([[[0.0, 0.0, -0.5], [0.0, 0.0, 0.5]], ring]), tets)


@fem.bilinear_form
def laplace(u, v, w):
    return fem.dot(fem.grad(u), fem.grad(v))


@fem.bilinear_form
def mass(u, v, w):
    return u * v


@fem.bilinear_form
def diffusion(u, v, w):
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v))


@fem.bilinear_form
def tensor_diffusion(u, v, w):
    return fem.dot(fem.grad(v), fem.mul(w.kappa, fem.grad(u)))


@fem.bilinear_form
def advection(u, v, w):
    return fem.dot(w.wind, fem.grad(u)) * v


@fem.bilinear_form
def stabilised(u, v, w):
    """Streamline diffusion, with a coefficient that is no polynomial."""
    speed = np.sqrt(fem.dot(w.wind, w.wind) + 1.0)
    tau = w.h / (2.0 * speed)
    return tau * fem.dot(w.wind, fem.grad(u)) * fem.dot(w.wind, fem.grad(v)) + np.sin(w.x[0]) * u * v


@fem.bilinear_form(trial="vector", test="vector")
def elasticity(u, v, w):
    e, d = fem.sym_grad(u), fem.sym_grad(v)
    return 2.0 * w.mu * fem.ddot(e, d) + w.kappa * fem.div(u) * fem.div(v)


@fem.bilinear_form(trial="vector", test="vector")
def momentum(u, v, w):
    carried = fem.Vector(fem.dot(w.wind, fem.grad(u[i])) for i in range(3))
    return fem.dot(u, v) + 0.5 * fem.dot(carried, v)


@fem.bilinear_form(trial="vector")
def divergence(u, v, w):
    return fem.div(u) * v


@fem.bilinear_form(test="vector")
def gradient(u, v, w):
    return w.kappa * fem.dot(fem.grad(u), v)


@fem.linear_form
def load(v, w):
    return (w.x[0] ** 2 + w.source) * v


@fem.linear_form
def flux(v, w):
    return fem.dot(fem.grad(w.potential), fem.grad(v)) * w.h + fem.div(w.wind) * v


@fem.linear_form(test="vector")
def force(v, w):
    return w.source * v[2] - fem.div(v)


def samples(rng, n_samples, *shape):
    """An ensemble of positive numbers."""
    return Ensemble(rng.uniform(0.5, 2.0, (*shape, n_samples)))


def cases(mesh, rng, n_samples):
    """(form, fields) of every kind of coefficient, in every place."""
    n, e = mesh.n_nodes, mesh.n_elements
    wind = samples(rng, n_samples, n, 3)
    tensor = samples(rng, n_samples, e, 3, 3)
    return [
        (laplace, {}),
        (mass, {}),
        (diffusion, {"kappa": samples(rng, n_samples)}),
        (diffusion, {"kappa": samples(rng, n_samples, e)}),
        (diffusion, {"kappa": samples(rng, n_samples, n)}),
        (diffusion, {"kappa": fem.at_points(samples(rng, n_samples, e, 1))}),
        (tensor_diffusion, {"kappa": tensor}),
        (advection, {"wind": wind}),
        (advection, {"wind": samples(rng, n_samples, 3)}),
        (stabilised, {"wind": wind}),
        (elasticity, {"mu": samples(rng, n_samples, e), "kappa": 1.5}),
        (momentum, {"wind": wind}),
        (divergence, {}),
        (gradient, {"kappa": samples(rng, n_samples, n)}),
        (load, {"source": samples(rng, n_samples, n)}),
        (flux, {"potential": samples(rng, n_samples, n), "wind": wind}),
        (force, {"source": samples(rng, n_samples, e)}),
    ]


CASES = range(17)

WITHOUT_FIELDS = (0, 1, 12)
"""Cases in which nothing says which library of arrays is meant."""


def values_of(assembled):
    """The bare values of a matrix or vector, (entries, n_samples)."""
    values = assembled.values if hasattr(assembled, "values") else assembled.samples
    return values.reshape(-1, values.shape[-1])


def emulate(monkeypatch):
    """Forms are assembled by the kernels of a device, compiled for the CPU."""
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", emulated)
    monkeypatch.setattr(form_symmetric, "_kernel", emulated_symmetric)


def terms_of(form, mesh, monkeypatch, **fields):
    """What a form is traced to with these fields, whatever other tests traced it to."""
    monkeypatch.setattr(form, "traced", {})
    form.assemble(mesh, **fields)
    (terms,) = form.traced.values()
    return terms


@functools.cache
def emulated(form, element, layout, longest):
    """The kernel of a form, its capacity and shared memory, compiled for the CPU."""
    text, capacity, shared = form_cuda.assembly_source(form, element, layout, longest)
    assert EXTERN in text
    text = text.replace(EXTERN, f"static __attribute__((aligned(16))) char memory[{max(shared, 16)}];")
    return cuda_on_cpu.Module(text, (), ("assemble",)).get_function("assemble"), capacity, shared


@functools.cache
def emulated_symmetric(form, element, layout, capacity, most_sources):
    """The kernel of a symmetric form and its shared memory, compiled for the CPU."""
    text, shared = form_symmetric.symmetric_source(form, element, layout, capacity, most_sources)
    assert EXTERN in text
    text = text.replace(EXTERN, f"static __attribute__((aligned(16))) char memory[{shared}];")
    return cuda_on_cpu.Module(text, (), ("assemble",)).get_function("assemble"), shared
