"""Parts of a study in Python: what they run, what they refuse, and that together they are the study."""

import numpy as np
import pytest

import ensemble as en
from ensemble.uq import Store, open_study
from ensemble.uq.store.claims import states
from tests.uq.study.models import INPUTS, SWITCH, beam, faulty, same_bits


def run(path, part=None, model=beam, n=64, **options):
    options = {"seed": 7, "progress": False, "ensemble_size": 8} | options
    return en.propagate(model, INPUTS, n, store=path, part=part, **options)


@pytest.mark.parametrize("keep", ["all", "statistics"])
def test_parts_in_any_order_and_of_any_size_are_the_study(tmp_path, keep):
    calm = run(tmp_path / "calm.zarr", keep=keep)
    for part, size in (("3/3", 5), ((1, 3), 8), ("2/3", "auto")):
        own = run(tmp_path / "run.zarr", part, ensemble_size=size, keep=keep)
    assert own.n_done == 64 and same_bits(own, calm)
    assert same_bits(open_study(tmp_path / "run.zarr"), open_study(tmp_path / "calm.zarr"))


def test_a_long_journal_of_a_part_is_compacted_at_the_end_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("ensemble.uq.study.plan.JOURNAL_BYTES", 100)
    seen = []

    def watched(x):
        seen.append([one.state for one in states(tmp_path / "run.zarr" / ".ensemble" / "parts")])
        return beam(x)

    study = en.uq.study.plan.Plan  # whose source of the model is not compared: the list changes
    monkeypatch.setattr(study, "manifest", lambda self, stored=None: {"n": 64, "seed": 7, "sampler": {}, "inputs": {}})
    run(tmp_path / "run.zarr", "1/2", model=watched)
    assert seen == [["running"]] * 4
    run(tmp_path / "run.zarr", "2/2", model=watched)
    assert seen[4:] == [["ended", "running"]] * 4


def test_a_part_that_fails_to_begin_leaves_the_store_to_the_others(tmp_path):
    def wrong(x):
        return {"tip": x.lod}

    with pytest.raises(AttributeError, match="no input 'lod'"):
        run(tmp_path / "run.zarr", "1/2", model=wrong)
    assert Store.exists(tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="source_digest"):
        run(tmp_path / "run.zarr", "1/2")


def test_an_interrupted_part_is_taken_by_the_next_job(tmp_path):
    def interrupted(x):
        if raising and 40 in x.ids:
            raise KeyboardInterrupt
        return beam(x)

    raising = [True]
    calm = run(tmp_path / "calm.zarr", model=interrupted, ensemble_size=64) if not raising else None
    first = next(k for k in (1, 2) if en.uq.store.parts.ids_of_part(k, 2, 64)[40])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.zarr", (first, 2), model=interrupted)
    raising.clear()
    # The enclosed list is part of the model's identity, which force accepts where a study is resumed as a whole.
    advice = r"source_digest.*: call propagate\(..., resume='force'\) without part if its outputs have not"
    with pytest.raises(ValueError, match=advice):
        run(tmp_path / "run.zarr", (3 - first, 2), model=interrupted)
    with pytest.raises(ValueError, match="propagate: resume must be True or False with part; got 'force'"):
        run(tmp_path / "run.zarr", (3 - first, 2), model=interrupted, resume="force")
    found = run(tmp_path / "run.zarr", model=interrupted, resume="force")
    calm = run(tmp_path / "calm.zarr", model=interrupted)
    assert same_bits(found, calm)


def test_failed_samples_of_a_part_run_again(tmp_path, monkeypatch):
    def both(path, faults, **options):
        monkeypatch.setenv(SWITCH, faults)
        return [run(path, k, model=faulty, on_failure="mask", **options) for k in ("1/2", "2/2")][-1]

    calm = both(tmp_path / "calm.zarr", "")
    assert both(tmp_path / "run.zarr", "licence").n_failed > calm.n_failed
    found = both(tmp_path / "run.zarr", "", retry_failed=True)
    assert same_bits(found, calm) and np.array_equal(found.failed, calm.failed)


@pytest.mark.parametrize(
    "part, options, text",
    [
        ((0, 3), {}, "propagate: part must be"),
        ("4/3", {}, "propagate: part must be"),
        ("all", {}, "propagate: part must be"),
        ((1, 2, 3), {}, "propagate: part must be"),
        ("1/3", {"store": None}, "propagate: part must go with a store; got store=None"),
        (
            "1/3",
            {"store": "s3://bucket/run.zarr"},
            "propagate: part must go with a store in a folder that all jobs see",
        ),
        ("1/3", {"seed": None}, "propagate: seed must be given with part; got None"),
        ("1/3", {"n": "auto", "target": {"tip": 0.1}}, "propagate: n must be a number with part; got 'auto'"),
    ],
)
def test_arguments_of_parts_are_checked(tmp_path, part, options, text):
    path = options.pop("store", tmp_path / "run.zarr")
    with pytest.raises(ValueError, match=text):
        run(path, part, **options)
    assert not (tmp_path / "run.zarr").exists()
