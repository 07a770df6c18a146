"""A study continues only where its manifest is the stored one."""

import json

import pytest

from ensemble.uq.store import manifest as manifests

INPUTS = {"E": {"kind": "norm", "args": [0.0, 1.0]}, "nu": {"kind": "uniform", "args": [0.0, 0.5]}}
STUDY = {
    "n": 8, "seed": 1, "sampler": {"name": "sobol", "replicates": 8}, "source_digest": "aa", "inputs": INPUTS,
    "versions": {"numpy": "2.1.0"},
}  # fmt: skip


def checked(**changes):
    return manifests.checked("f", {**STUDY, **changes})


def test_a_manifest_reads_back_as_it_was_given(tmp_path):
    manifests.write(tmp_path, checked())
    assert manifests.read("f", tmp_path / "manifest.json") == {"format": manifests.FORMAT, **STUDY}


def test_the_versions_are_added():
    found = manifests.checked("f", {"n": 3})["versions"]
    assert set(found) == {"python", "numpy", "scipy", "ensemble"} and all(found.values())


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"seed": 2}, "seed: stored 1, given 2. Give the stored study's values, or another path"),
        ({"sampler": {"name": "halton", "replicates": 8}}, 'sampler.name: stored "sobol", given "halton"'),
        ({"inputs": {**INPUTS, "E": {"kind": "norm", "args": [0.0, 2.0]}}}, r"inputs.E.args: stored \[0.0, 1.0\]"),
        ({"inputs": {"E": INPUTS["E"]}}, 'inputs.nu: stored {"kind": "uniform".*}, given nothing'),
        ({"inputs": dict(reversed(INPUTS.items()))}, r'order in inputs: stored \["E", "nu"\], given \["nu", "E"\]'),
        ({"extra": None}, "extra: stored nothing, given null"),
        ({"n": 7}, r"n: stored 8, given 7 \(it may only grow\)"),
        ({"source_digest": "bb"}, 'source_digest: stored "aa", given "bb". The model.s source has changed: pass force'),
        ({"seed": 2, "source_digest": "bb"}, "seed: stored 1, given 2; source_digest: .*Give the stored study"),
    ],
)  # fmt: skip
def test_another_study_is_refused_and_each_difference_is_named(changes, text):
    with pytest.raises(ValueError, match=f"^f: manifest must equal the stored one; got {text}"):
        manifests.merged("f", checked(), checked(**changes), force=False)


def test_the_order_of_the_first_keys_is_free():
    given = manifests.checked("f", dict(reversed(STUDY.items())))
    assert manifests.merged("f", checked(), given, force=False) == checked()


def test_the_number_of_samples_may_grow():
    assert manifests.merged("f", checked(), checked(n=9), force=False) == checked(n=9)


def test_a_changed_source_is_taken_over_on_request():
    assert manifests.merged("f", checked(), checked(source_digest="bb"), force=True)["source_digest"] == "bb"


def test_force_is_for_the_source_only():
    with pytest.raises(ValueError, match=r"seed: stored 1, given 2"):
        manifests.merged("f", checked(), checked(seed=2, source_digest="bb"), force=True)


def test_other_versions_warn_and_are_noted_once():
    newer = checked(versions={"numpy": "2.4.0"})
    with pytest.warns(RuntimeWarning, match=r"other versions \(numpy \"2.1.0\" before and \"2.4.0\" now\)"):
        found = manifests.merged("f", checked(), newer, force=False)
    assert found == {**checked(), "later_versions": [{"numpy": "2.4.0"}]}
    with pytest.warns(RuntimeWarning, match=r"other versions"):
        assert manifests.merged("f", found, newer, force=False) == found


def test_outputs_are_compared_where_both_have_them():
    tip = {"outputs": {"tip": {"dtype": "float64", "shape": []}}}
    other = {"outputs": {"tip": {"dtype": "float32", "shape": []}}}
    assert manifests.merged("f", checked(), checked(**tip), force=False)["outputs"] == tip["outputs"]
    assert manifests.merged("f", checked(**tip), checked(), force=False)["outputs"] == tip["outputs"]
    with pytest.raises(ValueError, match=r'outputs.tip.dtype: stored "float64", given "float32"'):
        manifests.merged("f", checked(**tip), checked(**other), force=False)


@pytest.mark.parametrize(
    "given, error, text",
    [
        ([1], TypeError, "manifest must be a dict; got a list"),
        ({"n": 1, "x": object()}, TypeError, "manifest must hold numbers, text, lists and dicts only; got .*object"),
        ({"seed": 1}, ValueError, r"manifest must have the key 'n', the number of samples; got \['seed'\]"),
        ({"n": -1}, ValueError, r"manifest\['n'\] must be an integer of at least 0; got -1"),
        ({"n": 1.5}, TypeError, r"manifest\['n'\] must be an integer of at least 0; got 1.5"),
    ],
)
def test_what_is_no_manifest_is_refused(given, error, text):
    with pytest.raises(error, match=f"^f: {text}"):
        manifests.checked("f", given)


@pytest.mark.parametrize("contents", ["", "{", "[]", "{}", '{"format": "new"}'])
def test_an_unreadable_file_is_refused(tmp_path, contents):
    (tmp_path / "manifest.json").write_text(contents)
    with pytest.raises(ValueError, match=r"^f: path must have a readable manifest; got .*manifest.json"):
        manifests.read("f", tmp_path / "manifest.json")


@pytest.mark.parametrize("version, advice", [(4, "Use a newer version"), (1, "Run the study again")])
def test_another_format_is_refused(tmp_path, version, advice):
    (tmp_path / "manifest.json").write_text(json.dumps({"format": version}))
    with pytest.raises(ValueError, match=rf"path must be a store of format version 2 or 3; got {version}. {advice}"):
        manifests.read("f", tmp_path / "manifest.json")
