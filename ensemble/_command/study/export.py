"""``ensemble export``: inputs and outputs of a store as CSV or NetCDF."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
from typing import Any

from ensemble import uq
from ensemble._command.shared.files import require_writable, write_whole
from ensemble._command.study.report import chosen_outputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble export``."""
    require_writable("FILE", options.file, (".csv", ".nc"))
    result = uq.open_study(options.store)
    names = chosen_outputs(result, options.outputs)
    dataset = result.to_xarray()
    dataset = dataset.drop_vars([name for name in result.names if name not in names])
    contents = as_netcdf(dataset) if options.file.suffix.lower() == ".nc" else as_csv(dataset).encode()
    write_whole(options.file, lambda file: file.write(contents))
    return 0


def as_netcdf(dataset: Any) -> bytes:
    """The bytes of a NetCDF file: of version 4 where h5netcdf is installed, else of version 3."""
    dataset.attrs["seed"] = str(dataset.attrs["seed"])  # version 3 has integers of 32 bits
    if importlib.util.find_spec("h5netcdf") is not None:
        return bytes(dataset.to_netcdf(engine="h5netcdf"))
    try:
        return bytes(dataset.to_netcdf(engine="scipy"))
    except (TypeError, ValueError) as error:
        seen = str(error).partition(". ")[0]
        raise ValueError(
            f"export: outputs must be such as NetCDF 3 holds; got an error: {seen}. Install h5netcdf."
        ) from None


def as_csv(dataset: Any) -> str:
    """One row per sample: its number, the inputs and outputs that are numbers, and whether it failed."""
    variables = {**dataset.coords, **dataset.data_vars}
    scalars = {name: v.values for name, v in variables.items() if v.dims == ("sample",)}
    left_out = [name for name, v in dataset.data_vars.items() if v.dims != ("sample",)]
    if left_out:
        names = ", ".join(str(name) for name in left_out)
        raise ValueError(f"export: outputs of a CSV file must be numbers; got fields {names}. Write FILE.nc, or choose "
                         "others by --output.")  # fmt: skip
    columns = ["sample", *(name for name in scalars if name != "sample")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(scalars[name].tolist() for name in columns), strict=True))
    return text.getvalue()
