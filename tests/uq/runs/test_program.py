"""Programs outside Python: what they are given, what is read, how they fail, which folders stay."""

import json
import os
import pickle
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq import FromFile, Program
from ensemble.uq.inputs.samples import UnknownInputError
from ensemble.uq.runs.readers import OutputMissingError, numbers_of
from tests.uq.study.models import napping, same_bits

INPUTS = en.Inputs(
    load=stats.norm(1.0, 0.2),
    wind=en.uq.Vector(stats.norm(), 2),
    material=en.uq.Categorical({"steel": 0.3, "wood": 0.7}),
)

SHELL = """#!/bin/sh
cat in.txt > copy.txt
echo "{{load}}" > tip.txt
echo "to the log"
echo "step {{sample}}" >&2
case "{{load}}" in 0.7*) exit 3;; 0.8*) kill -SEGV $$;; 0.9*) rm tip.txt;; esac
[ -z "$SLOW" ] || case "{{load}}" in 1.3*) sleep $ENSEMBLE_TEST_NAP & wait;; esac
"""


@pytest.fixture
def template(tmp_path):
    folder = tmp_path / "template"
    (folder / "deep").mkdir(parents=True)
    (folder / "in.txt").write_text("{{ load }}\n{{wind}}\n{{wind[1]:.3e}} {{material}} {{ other } {{{load}}}\n")
    (folder / "run.sh").write_text(SHELL)
    (folder / "run.sh").chmod(0o755)
    (folder / "deep" / "binary").write_bytes(b"\xff{{load}}")
    (folder / "mesh.msh").write_text("{{unknown}} of another program")
    return folder


def program(template, tmp_path, **options):
    outputs = options.pop("outputs", {"tip": "tip.txt"})
    given = {"template": template, "folder": tmp_path / "runs", "links": ["*.msh"]} | options
    return Program("./run.sh", outputs, **given)


def run(model, n=32, inputs=INPUTS, **options):
    return en.propagate(model, inputs, n, **{"seed": 3, "progress": False, "ensemble_size": 8} | options)


@pytest.mark.parametrize("executor", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_outputs_and_failures_of_a_program_are_those_of_its_files(template, tmp_path, executor):
    result = run(program(template, tmp_path), executor=executor)
    load = INPUTS.samples(32, seed=3).load.samples
    failing = (load >= 0.7) & (load < 1.0)
    assert np.array_equal(result.failed, failing) and 3 < failing.sum() < 28
    assert np.array_equal(result.values("tip")[~failing], load[~failing])  # every digit of the input
    kinds = {"exit code 3": load < 0.8, "ended by SIGSEGV": load < 0.9, "there is no file 'tip.txt'": load < 1.0}
    for i in np.flatnonzero(failing):
        expected = next(text for text, below in kinds.items() if below[i])
        assert result.reasons[int(i)] == f"RunFailedError: {expected}; last lines of stderr.txt:\n  step {i}"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"sample-{i:06d}" for i in np.flatnonzero(failing)
    ]
    assert set(result.failures) == {f"RunFailedError: {text}; last lines of stderr.txt:" for text in kinds} - (
        set() if (load < 0.8).any() else {"RunFailedError: exit code 3; last lines of stderr.txt:"}
    )


def test_a_study_is_named_by_the_command_of_its_program(template, tmp_path):
    named = {"./run.sh a  b": "./run.sh a b", ("./run.sh", "c d", "x" * 90): f"./run.sh 'c d' {'x' * 62}..."}
    for k, (command, expected) in enumerate(named.items()):
        model = Program(command, {"tip": "tip.txt"}, template=template, links=["*.msh"], folder=tmp_path / "runs")
        run(model, 8, store=tmp_path / f"{k}.zarr")
        assert en.uq.Store.open(tmp_path / f"{k}.zarr").manifest["model"] == expected


def test_the_folder_of_a_run_has_the_values_of_its_sample(template, tmp_path):
    run(program(template, tmp_path, keep="all"), on_failure="mask")
    x = INPUTS.samples(32, seed=3).sample(5)
    folder = tmp_path / "runs" / "sample-000005"
    first, second = (repr(float(value)) for value in x.wind)
    text = f"{x.load!r}\n{first} {second}\n{x.wind[1]:.3e} {x.material} {{{{ other }} {{{x.load!r}}}\n"
    assert (folder / "in.txt").read_text() == text == (folder / "copy.txt").read_text()
    assert (folder / "deep" / "binary").read_bytes() == b"\xff{{load}}"
    assert (folder / "mesh.msh").resolve() == template / "mesh.msh"
    assert (folder / "stdout.txt").read_text() == "to the log\n"


@pytest.mark.parametrize("keep", ["packed", "none"])
def test_folders_are_packed_or_removed(template, tmp_path, keep):
    run(program(template, tmp_path, keep=keep), n=8, on_failure="mask")
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ([f"sample-{i:06d}.tar.gz" for i in range(8)] if keep == "packed" else [])
    if names:
        with tarfile.open(tmp_path / "runs" / names[2]) as archive:
            assert "sample-000002/in.txt" in archive.getnames()


def test_placeholders_are_compared_with_the_inputs_before_anything_runs(template, tmp_path):
    (template / "more.txt").write_text("{{lod}} {{stiffness}}")
    wanted = r"Program: placeholders must be among the inputs, load, wind, material; got lod, stiffness"
    with pytest.raises(UnknownInputError, match=wanted):
        run(program(template, tmp_path))
    assert not (tmp_path / "runs").exists()
    (template / "more.txt").unlink()
    further = en.Inputs(**{name: INPUTS[name] for name in INPUTS.names}, spare=stats.norm())
    with pytest.warns(UserWarning, match="no placeholder of the template or the command takes spare"):
        run(program(template, tmp_path), n=8, inputs=further, on_failure="mask")


@pytest.mark.parametrize(
    "text, wanted", [("{{wind[2]}}", "name an entry of the input"), ("{{material:.2f}}", "have a format of str")]
)
def test_a_placeholder_that_does_not_fit_its_input_ends_the_study(template, tmp_path, text, wanted):
    (template / "more.txt").write_text(text)
    with pytest.raises(UnknownInputError, match=wanted):
        run(program(template, tmp_path))


def test_a_field_is_written_by_a_function(tmp_path):
    inputs = en.Inputs(
        kappa=en.uq.fields.KarhunenLoeve.exponential(domain=[[0.0, 1.0]], length=0.5, n_terms=3, mean=1.0, std=0.1)
    )

    def prepare(sample, folder):
        np.savetxt(folder / "kappa.txt", sample.kappa(np.linspace(0.0, 1.0, 4)[:, None]))

    model = Program("cat kappa.txt", {"k": "stdout.txt"}, folder=tmp_path / "runs", prepare=prepare)
    assert run(model, 8, inputs)["k"].shape == (4,)


@pytest.mark.filterwarnings("ignore:Program. no placeholder")
def test_a_wrong_program_ends_the_study_with_its_log(tmp_path):
    model = Program([sys.executable, "-c", "import nothing_like_it"], {"y": "y.txt"}, folder=tmp_path / "runs")
    with pytest.raises(en.uq.SampleError, match=r"exit code 1; last lines of stderr.txt:[\s\S]*No module named"):
        run(model, inputs=en.Inputs(a=1.0, b=stats.norm()), executor=None)


@pytest.mark.filterwarnings("ignore:Program. no placeholder")
def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(en.uq.SampleError, match="there is no program 'no-such-program'"):
        run(Program("no-such-program", {"y": "y.txt"}, folder=tmp_path / "runs"))


def test_a_program_that_hangs_is_ended_with_what_it_started(template, tmp_path):
    model = program(template, tmp_path, environment={"SLOW": "1"})
    start = time.monotonic()
    result = run(model, sample_seconds=0.5, on_failure="mask")
    late = [text for text in result.reasons.values() if "TimeLimit" in text]
    assert late and "sample_seconds=0.5; its program was ended" in late[0] and time.monotonic() - start < 30.0
    assert napping() == []


KILLED = """
import os, sys, time, threading
import ensemble as en
from scipy import stats
command = ["sh", "-c", "echo $$ > " + sys.argv[1] + "; sleep $ENSEMBLE_TEST_NAP; echo {{a}}"]
model = en.uq.Program(command, {"y": "stdout.txt"}, folder=sys.argv[2])
en.propagate(model, en.Inputs(a=stats.norm()), 8, seed=1, progress=False)
"""


@pytest.mark.slow
def test_a_program_ends_with_a_driver_that_is_killed(tmp_path):
    mark = tmp_path / "started"
    driver = subprocess.Popen([sys.executable, "-c", KILLED, str(mark), str(tmp_path / "runs")])
    until = time.monotonic() + 60.0
    while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    driver.kill()
    driver.wait()
    while napping() and time.monotonic() < until:
        time.sleep(0.05)
    assert napping() == []
    model = Program("echo {{a}}", {"y": "stdout.txt"}, folder=tmp_path / "runs")
    run(model, 8, en.Inputs(a=stats.norm()))
    assert list((tmp_path / "runs").iterdir()) == []  # what the killed run has left, too


@pytest.mark.filterwarnings("ignore:Program. no placeholder")
def test_the_digest_of_a_study_has_template_command_and_readers(template, tmp_path):
    def digest(**options):
        return en.uq.source_digest(program(template, tmp_path, **options))

    calm = digest()
    assert digest(keep="all", folder=tmp_path / "other", log_lines=3) == calm
    assert digest(outputs={"tip": FromFile("tip.txt", pattern="(.*)")}) != calm
    assert digest(environment={"A": "b"}) != calm
    (template / "in.txt").write_text("{{load}}")
    assert digest() != calm
    run(program(template, tmp_path), store=tmp_path / "run.zarr")
    (template / "in.txt").write_text("{{load}} ")
    with pytest.raises(ValueError, match="source_digest"):
        run(program(template, tmp_path), store=tmp_path / "run.zarr", resume=True)


def test_a_program_is_pickled_with_its_template(template, tmp_path):
    model = pickle.loads(pickle.dumps(program(template, tmp_path)))
    (template / "in.txt").unlink()
    assert same_bits(run(model, 16, on_failure="mask"), run(model, 16, on_failure="mask"))


WRITTEN = {
    "one.txt": "1.5\n",
    "line.txt": "1, 2 3\n",
    "column.txt": "# u\n1\n2\n\n3 # end\n",
    "matrix.txt": "1 2\n3 4\n",
    "out.csv": "# made by\nt, u\n0,1.5\n1, 2.5\n",
    "bare.csv": "0;1.5\n1;2.5\n",
    "out.json": json.dumps({"fit": {"peaks": [{"height": 2}]}, "all": [1, 2.5]}),
    "log.txt": "tip = 1.0\ntip = 2.0e-3 m\n",
}


@pytest.mark.parametrize(
    "reader, expected",
    [
        (FromFile("one.txt"), 1.5),
        (FromFile("line.txt"), [1.0, 2.0, 3.0]),
        (FromFile("column.txt"), [1.0, 2.0, 3.0]),
        (FromFile("matrix.txt"), [[1.0, 2.0], [3.0, 4.0]]),
        (FromFile("out.csv", column="u"), [1.5, 2.5]),
        (FromFile("out.csv", column="u", row=-1), 2.5),
        (FromFile("out.csv", column=0), [0.0, 1.0]),
        (FromFile("bare.csv", column=1, delimiter=";"), [1.5, 2.5]),
        (FromFile("out.json", key="fit.peaks[0].height"), 2.0),
        (FromFile("out.json", key="all"), [1.0, 2.5]),
        (FromFile("log.txt", pattern=r"tip = (\S+)"), 0.002),
        (FromFile("three.nc", variable="u"), [1.0, 2.0]),
    ],
    ids=str,
)
def test_numbers_are_read_from_files(tmp_path, reader, expected):
    from scipy.io import netcdf_file

    for name, text in WRITTEN.items():
        (tmp_path / name).write_text(text)
    with netcdf_file(tmp_path / "three.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("u", "d", ("x",))[:] = [1.0, 2.0]
    assert np.array_equal(reader(tmp_path), expected)


@pytest.mark.parametrize("version", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_packed_numbers_of_netcdf_are_what_they_stand_for(tmp_path, version):
    """Stored as short integers with a scale and an offset; one is missing. And a number without axes."""
    from scipy.io import netcdf_file

    if version == 3:
        with netcdf_file(tmp_path / "packed.nc", "w") as file:
            file.createDimension("x", 3)
            packed = file.createVariable("u", "h", ("x",))
            packed[:] = [1, 2, -9]
            packed.scale_factor, packed.add_offset, packed._FillValue = 0.5, 10.0, np.int16(-9)
            file.createVariable("end", "f", ()).data[...] = 2.5
    else:
        xarray, _ = pytest.importorskip("xarray"), pytest.importorskip("h5netcdf")
        encoding = {"u": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -9}}
        whole = xarray.Dataset({"u": ("x", [10.5, 11.0, np.nan]), "end": ((), np.float32(2.5))})
        whole.to_netcdf(tmp_path / "packed.nc", engine="h5netcdf", encoding=encoding)
    assert np.array_equal(FromFile("packed.nc", variable="u")(tmp_path), [10.5, 11.0, np.nan], equal_nan=True)
    end = FromFile("packed.nc", variable="end")(tmp_path)
    assert end == 2.5 and np.ndim(end) == 0


@pytest.mark.slow
def test_netcdf_of_version_4_is_read(tmp_path):
    xarray, _ = pytest.importorskip("xarray"), pytest.importorskip("h5netcdf")
    xarray.Dataset({"u": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "four.nc", engine="h5netcdf")
    assert FromFile("four.nc", variable="u")(tmp_path).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "reader, text",
    [
        (FromFile("none.txt"), "there is no file 'none.txt'"),
        (FromFile("log.txt"), "log.txt has no numbers alone"),
        (FromFile("out.csv", column="v"), "out.csv has no number at column 'v'"),
        (FromFile("out.csv", column="u", row=7), "out.csv has no number at column 'u', row 7"),
        (FromFile("out.json", key="fit.none"), "out.json has no number at key 'fit.none'"),
        (FromFile("log.txt", pattern="end (.*)"), "log.txt has no number at pattern"),
        (FromFile("log.txt", key="a"), "log.txt has no number at key 'a'"),
    ],
    ids=str,
)
def test_numbers_that_are_not_there_are_named(tmp_path, reader, text):
    for name, contents in WRITTEN.items():
        (tmp_path / name).write_text(contents)
    with pytest.raises(OutputMissingError, match=text):
        reader(tmp_path)


@pytest.mark.parametrize(
    "contents, reader, text",
    [
        (
            "t,u\n0,1.5\n0,2,5\n",
            FromFile("a", column="u"),
            "a line has more columns than the first one, 2, between ','",
        ),
        ("t;u\n0;1,5\n", FromFile("a", column=0), "more columns than the first one, 1, between ','"),
        ("u,u\n1,2\n", FromFile("a", column="u"), "2 columns have that name"),
        ("t,u\n0\n", FromFile("a", column="u"), "a has no number at column 'u'"),
        ("t,u\n0,\n", FromFile("a", column="u"), "a has no number at column 'u'"),
        ("t,u\n0,1_5\n", FromFile("a", column="u"), "could not convert string to float: '1_5'"),
        ("1_5", FromFile("a"), "could not convert string to float: '1_5'"),
        ("u = 1_5", FromFile("a", pattern="u = (.*)"), "could not convert string to float: '1_5'"),
    ],
)
def test_numbers_that_could_be_others_are_refused(tmp_path, contents, reader, text):
    (tmp_path / "a").write_text(contents)
    with pytest.raises(OutputMissingError, match=text):
        reader(tmp_path)


def test_blank_columns_at_the_end_of_lines_are_left_out(tmp_path):
    (tmp_path / "a").write_text("t,u\n0,1.5,\n1,2.5, \n")
    assert FromFile("a", column="u")(tmp_path).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("reader", ["deep/../old.txt", FromFile("old.txt", pattern="y = (.*)")], ids=str)
def test_an_output_of_the_template_that_a_run_does_not_write_is_none(tmp_path, reader):
    """Half of the runs write the file, one of them the same text; the others leave that of the template."""
    (tmp_path / "template" / "deep").mkdir(parents=True)
    (tmp_path / "template" / "old.txt").write_text("5.0\n" if isinstance(reader, str) else "y = 5.0\n")
    (tmp_path / "template" / "run.sh").write_text(
        "#!/bin/sh\ncase {{sample}} in 0) cp old.txt a; cat a > old.txt;; "
        "1|2|3) sed -i s/5/{{sample}}/ old.txt;; esac\n"
    )
    (tmp_path / "template" / "run.sh").chmod(0o755)
    model = Program("./run.sh", {"y": reader}, template=tmp_path / "template", folder=tmp_path / "runs", keep="none")
    with pytest.warns(UserWarning, match="no placeholder"):
        result = run(pickle.loads(pickle.dumps(model)), 8, on_failure="mask")
    assert (
        result.values("y")[:4].tolist() == [5.0, 1.0, 2.0, 3.0] and result.failed.tolist() == [False] * 4 + [True] * 4
    )
    assert "old.txt is that of the template: the program has not written it" in result.reasons[5]


@pytest.mark.parametrize("link", ["old.txt", "deep"])
def test_an_output_is_no_link_to_the_template(tmp_path, link):
    (tmp_path / "template" / "deep").mkdir(parents=True)
    for name in ("old.txt", "deep/old.txt"):
        (tmp_path / "template" / name).write_text("5.0\n")
    with pytest.raises(ValueError, match=f"Program: links must name no output; got {link}. All runs would write to"):
        Program("true", {"y": "old.txt", "z": "deep/old.txt"}, template=tmp_path / "template", links=[link])


def test_an_empty_file_and_rows_of_several_lengths_are_no_numbers():
    for text in ("", "# nothing", "1 2\n3", "1_5"):
        with pytest.raises(ValueError):
            numbers_of(text)


@pytest.mark.parametrize(
    "arguments, options, error, text",
    [
        (("", {"y": "y"}), {}, ValueError, "Program: command must name a program"),
        (("a", {}), {}, TypeError, "Program: outputs must be a dict with a reader for each output"),
        (("a", {"y": 3}), {}, TypeError, r"Program: outputs\['y'\] must be the name of a file, FromFile or a function"),
        (("a", {"y": "y"}), {"keep": "some"}, ValueError, "Program: keep must be one of"),
        (("a", {"y": "y"}), {"template": "no/such"}, ValueError, "Program: template must be a folder or a file"),
        (("a", {"y": "y"}), {"delimiters": ("", "}")}, ValueError, "Program: delimiters must be two different texts"),
    ],
)
def test_arguments_are_checked(arguments, options, error, text):
    with pytest.raises(error, match=text):
        Program(*arguments, **options)


def test_a_full_disk_fails_samples_until_they_run_again(template, tmp_path, monkeypatch):
    model = program(template, tmp_path)
    calm = run(model, on_failure="mask", store=tmp_path / "calm.zarr")
    real, left = os.open, [40]

    def full(path, *rest, **named):
        if str(path).startswith(str(tmp_path / "runs")):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device", str(path))
        return real(path, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        first = run(model, on_failure="mask", store=tmp_path / "run.zarr")
    assert any("No space left" in text for text in first.reasons.values())
    found = run(model, on_failure="mask", store=tmp_path / "run.zarr", resume=True, retry_failed=True)
    assert same_bits(found, calm) and found.reasons == calm.reasons
