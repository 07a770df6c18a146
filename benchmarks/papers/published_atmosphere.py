"""Numbers of paper 003, Li et al., tables 1 and 3 to 10: the page and the benchmarks take them here."""

from __future__ import annotations

CONSTRUCTION = {
    "temperature": (2477.545, 2466.594), "water vapour": (2477.194, 2471.302), "cloud water": (2466.853, 2494.424),
    "rain water": (1785.827, 1799.104), "momentum": (13029.408, 12093.145), "divergence": (3662.082, 3634.111),
    "pressure diffusion": (3505.105, None), "projection": (1126.747, 1125.822),
}  # fmt: skip
"""Table 1: milliseconds of a module on one core, in a time step with the stabilisation and in one without."""

CONSTRUCTION_TOTAL, STEP_TOTAL = (30530.760, 26084.502), (51156.631, 41432.952)

VALUES = {"scalar": (6.628, 0.0276), "vector": (13.633, 0.0768), "tensor": (32.345, 0.1976)}
"""Table 3: milliseconds on one core and on an A100."""

FUNCTIONS = {
    "transform_to_physical": (525.575, 3.964, "transform"),
    "dshape_tensor_dshape": (1865.290, 1.969, "dshape_tensor_dshape"),
    "shape_shape": (104.221, 1.012, "shape_shape"),
    "shape_dshape": (246.047, 1.371, "shape_dshape"),
    "get_edge_lengthes": (1369.171, 7.476, "edge_lengths"),
}
"""Table 4, and the name of our kernel."""

VERSIONS = {"Baseline": (35.799, 36.314), "Unroll": (20.847, 26.890),
            "Templated matrix product and dot product": (1.969, 3.689)}  # fmt: skip
"""Table 5: milliseconds on an A100 with one array of gradients and with two."""

ASSEMBLY = {"matrix": (327.538, 0.842), "right-hand side": (48.254, 0.116)}
"""Table 6."""

TRANSFERS = {
    "nodes of the elements": (8_870_304, 0.686, 0.348), "scalar field at nodes": (829_080, 0.086, 0.047),
    "vector field at nodes": (2_487_240, 0.204, 0.105), "tensor field at nodes": (7_461_720, 0.586, 0.332),
}  # fmt: skip
"""Table 7: bytes, and milliseconds from pageable and from pinned memory to an A100 over PCIe 4.0 x 16."""

MATRICES = {
    "temperature": (2563.158, 11.566), "water vapour": (2542.717, 11.251), "cloud water": (2566.037, 11.296),
    "rain water": (1877.409, 9.481), "momentum": (12641.197, 46.363), "divergence": (3657.007, 21.497),
    "pressure diffusion": (3505.105, 28.507), "projection": (1126.354, 10.944),
}  # fmt: skip
"""Table 8: milliseconds of a functional module on one core and on an A100."""

CONFIGURATIONS = {"CPU only": (41.838, 1.00), "1 CPU + 1 GPU": (17.147, 2.44), "4 CPUs": (13.376, 3.13),
                  "4 CPUs + 1 GPU": (4.880, 8.57)}  # fmt: skip
"""Table 9: seconds of a time step, and the gain over one core."""

GAINS = {
    3: {"ele_val_scalar": 240.14, "ele_val_vector": 177.51, "ele_val_tensor": 163.69},
    4: {"transform_to_physical": 132.59, "dshape_tensor_dshape": 947.33, "shape_shape": 103.01,
        "shape_dshape": 179.41, "get_edge_lengthes": 183.14},
    6: {"matrix": 389.02, "right-hand side": 415.64},
    8: {"temperature": 221.60, "water vapour": 226.00, "cloud water": 227.17, "rain water": 198.02,
        "momentum": 272.66, "divergence": 170.12, "pressure diffusion": 122.96, "projection": 102.92},
}  # fmt: skip
"""The last columns of tables 3, 4, 6 and 8: times of one core over those of the A100."""

STEP_SECONDS = {
    "temperature matrix": (2.467, 0.0226, 0.0120), "water vapour matrix": (2.471, 0.0137, 0.0041),
    "cloud water matrix": (2.494, 0.0139, 0.0038), "rain water matrix": (1.799, 0.0104, 0.0029),
    "momentum matrix": (12.093, 0.0313, 0.0384), "pressure correction matrix": (4.760, 0.0165, 0.0092),
    "PETSc": (5.212, 5.6045, 2.1921), "other modules": (10.136, 11.4341, 2.6175), "step": (41.433, 17.147, 4.880),
}  # fmt: skip
"""Table 10: seconds of the parts of a step on one core, with an A100, and with four processes and an A100."""
