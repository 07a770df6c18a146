"""Pictures of the pages can be read on a telephone."""

import struct
from pathlib import Path

import pytest

from benchmarks import plots

PLOTS, LARGEST = Path(plots.__file__).parent, 6.5


def width_in_inches(path):
    """Of a PNG file, by its pixels and its pixels per metre."""
    content = path.read_bytes()
    place = content.index(b"pHYs") + 4
    per_metre = struct.unpack(">I", content[place : place + 4])[0]
    return struct.unpack(">I", content[16:20])[0] / per_metre / 0.0254


def test_every_picture_has_a_width_at_which_letters_of_usual_size_are_read():
    wide = {path.name: width_in_inches(path) for path in plots.IMAGES.glob("*.png")}
    assert len(wide) >= 27 and {name: width for name, width in wide.items() if width > LARGEST} == {}


def test_every_program_saves_its_pictures_where_letters_are_measured():
    assert [path.name for path in PLOTS.glob("[!_]*.py") if "savefig" in path.read_text()] == []


def test_letters_that_a_telephone_shows_too_small_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(plots, "IMAGES", tmp_path)
    figure, axes = plots.panels(1, 1, 2.0)
    axes.set_title("read", fontsize=10.5)
    plots.save(figure, "fine.png")
    assert width_in_inches(tmp_path / "fine.png") == pytest.approx(plots.WIDTH, rel=1e-3)
    figure, axes = plots.panels(1, 1, 2.0)
    axes.annotate("not read", (0.5, 0.5), fontsize=9.0)
    with pytest.raises(ValueError, match=r"small\.png: letters of 7\.2 pixels"):
        plots.save(figure, "small.png")
    assert not (tmp_path / "small.png").exists()
