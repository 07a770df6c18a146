"""Versions of the compilers and of the libraries below them that the tests have run with."""

from __future__ import annotations

from importlib.metadata import version

from ensemble._check import warn_caller

__all__ = ["TESTED", "newer_than_tested", "warn_of_newer"]

TESTED = {"numba": (0, 68), "llvmlite": (0, 50), "numpy": (2, 5), "scipy": (1, 18)}
"""The newest releases, major and minor, of the machines on which the tests ran; see UPGRADE.md."""


def newer_than_tested() -> dict[str, str]:
    """The installed versions that are newer than `TESTED`, by name."""
    installed = {name: version(name) for name in TESTED}
    numbers = {name: tuple(int(part) for part in text.split(".")[:2]) for name, text in installed.items()}
    return {name: installed[name] for name in TESTED if numbers[name] > TESTED[name]}


def warn_of_newer() -> None:
    """Warn once of versions that the tests have not run with: names that are missing there slow compilation down."""
    newer = newer_than_tested()
    if newer:
        found = ", ".join(
            f"{name} {text} (tested up to {'.'.join(map(str, TESTED[name]))})" for name, text in newer.items()
        )
        text = f"ensemble has not been tested with {found}. Results are expected to be the same; `make test` in a "
        text += "checkout tells."
        if newer.keys() & {"numba", "llvmlite"}:
            text += " Compilation is slower where Numba has renamed what this library uses."
        warn_caller(text)
