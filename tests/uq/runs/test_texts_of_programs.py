"""Texts that programs take and write: formats of placeholders, codes of files, numbers of Fortran, missing values."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq import FromFile, Program
from ensemble.uq.inputs.samples import UnknownInputError
from ensemble.uq.runs.readers import OutputMissingError, number
from ensemble.uq.runs.template import Text, formatted

INPUTS = en.Inputs(load=stats.norm(1.0, 0.2), bolts=stats.binom(8, 0.9), wind=en.uq.Vector(stats.norm(), 2))
VALUES = type("Values", (dict,), {})(load=1.25, bolts=7.0, wind=np.array([0.5, -2.0]), material="oak")


def run(model, n=8, **options):
    return en.propagate(model, INPUTS, n, seed=3, progress=False, ensemble_size=8, **options)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("{{load:>12.3f}}", "       1.250"),
        ("{{load:<8.2f}}|", "1.25    |"),
        ("{{load: .3e}}", " 1.250e+00"),
        ("{{ load : .3e }}", "1.250e+00"),
        ("{{load:_^9}}", "__1.25___"),
        ("{{material: <6}}|", "oak   |"),
        ("{{bolts:d}} {{bolts:5d}} {{bolts}}", "7     7 7.0"),
        ("{{wind[-1]:+.1f}}", "-2.0"),
        ("{{load:}}", "1.25"),
        ("{{{load}}}", "{1.25}"),
    ],
)
def test_a_placeholder_has_every_format_of_python(text, expected):
    assert Text(text, ("{{", "}}"), "a").filled(VALUES, 3) == expected


def test_delimiters_that_are_signs_of_formats_end_a_placeholder():
    assert Text("<load:.1f><bolts:d> a<b", ("<", ">"), "a").filled(VALUES, 3) == "1.27 a<b"
    assert Text("%load:8.3f%", ("%", "%"), "a").filled(VALUES, 3) == "   1.250"


def test_a_format_of_whole_numbers_refuses_others():
    with pytest.raises(ValueError):
        formatted(1.5, "d")


@pytest.mark.parametrize(
    "text", ["{{load*2}}", "{{load.real}}", "{{load!r}}", "{{load", "{{ load | round }}", "{{wind[i]}}"]
)
@pytest.mark.parametrize("place", ["template", "command"])
def test_the_name_of_an_input_that_begins_no_placeholder_ends_the_study(tmp_path, text, place):
    """It would stay as it is, and the program would read it."""
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "a.in").write_text(f"{text if place == 'template' else ''}\n{{{{load}}}}\n")
    command = ["echo", text if place == "command" else "1"]
    model = Program(command, {"y": "stdout.txt"}, template=tmp_path / "template", folder=tmp_path / "runs")
    wanted = r"must begin {{(load|wind)}} or {{(load|wind)\[0\]}} or {{(load|wind):.6e}}; got '{{"
    with pytest.raises(UnknownInputError, match=wanted):
        run(model)
    assert not (tmp_path / "runs").exists()


def test_texts_of_other_programs_stay(tmp_path):
    (tmp_path / "a.in").write_text("{{ other | round }} {{ {{load}} }} {{1}}")
    model = Program(
        "cat a.in", {"y": lambda folder: 1.0}, template=tmp_path / "a.in", folder=tmp_path / "r", keep="all"
    )
    with pytest.warns(UserWarning, match="takes bolts, wind"):
        run(model)
    assert (tmp_path / "r" / "sample-000000" / "a.in").read_text().startswith("{{ other | round }} {{ ")


CODES = {"mark": "utf-8-sig", "utf-16": "utf-16"}
WRITTEN = {
    "numbers": ("3.5\n", FromFile("a"), 3.5),
    "csv": ("t,u\r\n0,1.5\r\n1,2.5\r\n", FromFile("a", column="t"), [0.0, 1.0]),
    "json": ('{"t": 2}', FromFile("a", key="t"), 2.0),
    "log": ("t = 2\r\nend\r\n", FromFile("a", pattern=r"^t = (\S+)$"), 2.0),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("code", CODES)
def test_files_with_a_mark_of_their_code_are_read(tmp_path, kind, code):
    text, reader, expected = WRITTEN[kind]
    (tmp_path / "a").write_bytes(text.encode(CODES[code]))
    assert np.array_equal(reader(tmp_path), expected)


@pytest.mark.parametrize(
    "reader", [FromFile("a", pattern=r"tip = (\S+)"), FromFile("a", column="tip = 3.5", row=0)], ids=str
)
def test_bytes_of_another_code_hide_no_number(tmp_path, reader):
    contents = b"at 20 \xb0C\ntip = 3.5\n" if reader.pattern else b"tip = 3.5,\xb0C\n3.5,1\n"
    (tmp_path / "a").write_bytes(contents)
    assert reader(tmp_path) == 3.5


@pytest.mark.parametrize(
    "text, value",
    [("1.5D+03", 1500.0), ("-2d0", -2.0), (".5D1", 5.0), ("0.15+103", 1.5e102), ("-1.5-103", -1.5e-103), ("1e5", 1e5)],
)
def test_numbers_of_fortran_are_read(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["2020-01", "1.5+10", "1.5D", "D+03", "1.5-1033", "1-103", "0x10", "1.5DD3"])
def test_texts_that_look_like_numbers_of_fortran_are_none(text):
    with pytest.raises(ValueError):
        number(text)


@pytest.mark.parametrize(
    "contents, reader",
    [
        ("0,----\n1,2\n", FromFile("a", column=1)),
        ("0,\n1,2\n", FromFile("a", column=1)),
        ("0,NA\n1,2\n", FromFile("a", column=1, row=-2)),
        ("t,u\n", FromFile("a", column="u")),
        ("t,u\n", FromFile("a", column=1)),
        ('{"a": []}', FromFile("a", key="a")),
        ("t,u\n0,1\x00\n", FromFile("a", column="u")),
    ],
)
def test_a_missing_value_is_no_name_of_a_column_and_no_empty_output(tmp_path, contents, reader):
    (tmp_path / "a").write_text(contents)
    with pytest.raises(OutputMissingError):
        reader(tmp_path)


def test_paths_of_json_are_checked_and_may_have_dots(tmp_path):
    (tmp_path / "a").write_text('{"a.b": [1, {"c d": 2}], "e": 3}')
    for key, value in (('["a.b"][1].c d', 2.0), ('["a.b"][-2]', 1.0), ("e", 3.0)):
        assert FromFile("a", key=key)(tmp_path) == value
    for key in ("a[0]]", "a[", "a[b]", ".a", "a..b", 'a["b]'):
        with pytest.raises(ValueError, match="FromFile: key must be a path"):
            FromFile("a", key=key)


@pytest.mark.parametrize(
    "given, text", [(None, "got None in sample 0"), ("3", "got '3' in sample 0"), ({}, "got {} in sample 0")]
)
def test_a_reader_that_returns_no_numbers_is_named(tmp_path, given, text):
    model = Program("echo {{load}} {{bolts}} {{wind}}", {"tip": lambda folder: given}, folder=tmp_path)
    with pytest.raises(ValueError, match=f"output 'tip' must be a number or an array of numbers; {text}"):
        run(model)


def test_masked_values_of_a_reader_are_missing(tmp_path):
    """As libraries for NetCDF return them: what stands below the mask is a fill value, and no data."""
    masked = np.ma.masked_array([1.0, 9.96921e36], [False, True])
    model = Program("echo {{load}} {{bolts}} {{wind}}", {"y": lambda folder: masked}, folder=tmp_path, keep="failed")
    result = run(model, on_failure="mask")
    assert result.n_failed == 8 and set(result.reasons.values()) == {"output 'y' is not finite"}
    assert (tmp_path / "sample-000000").exists()


def test_a_folder_that_cannot_be_kept_leaves_the_reason_of_the_run(tmp_path):
    model = Program(
        ["sh", "-c", "rm -rf ../.sample-*; exit 7 # {{load}} {{bolts}} {{wind}}"], {"y": "y"}, folder=tmp_path
    )
    result = run(model, on_failure="mask")
    assert all("exit code 7" in text and "its folder was not kept" in text for text in result.reasons.values())
    assert len(result.reasons) == 8
