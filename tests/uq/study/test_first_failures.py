"""What every one of the first samples raises is an error of the program: the study ends at once, and says it."""

import pickle

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq

INPUTS = en.Inputs(stiffness=stats.norm(1.0, 0.2), load=stats.uniform())
TABLE = {"steel": 1.0}
CALLS = []


def counted(model):
    def run(x):
        CALLS.append(1)
        return model(x)

    return run


def misspelt_attribute(x):
    return x.stifness


def misspelt_item(x):
    return x["stifness"]


def missing_key(x):
    return TABLE["stel"] * x.load


def missing_attribute(x):
    return x.load.real_part


def wrong_call(x):
    return np.linalg.norm(x.load, order=2)


def no_file(x):
    return np.loadtxt("/nowhere/table.txt") * x.load


class OwnError(Exception):
    """An exception that cannot be sent to another process."""

    def __init__(self, a, b):
        super().__init__("own")
        self.lock = (a, b, lambda: 0)


def own_exception(x):
    raise OwnError(1, 2)


ERRORS = [misspelt_attribute, misspelt_item, missing_key, missing_attribute, wrong_call, no_file, own_exception]


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def study(model, n=256, **options):
    return en.propagate(en.vectorize(counted(model)), INPUTS, n, seed=1, progress=False, **options)


@pytest.mark.parametrize("model", ERRORS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on_failure": "retry"},
        {"n": "auto", "target": {"y": 0.01}},
        {"ensemble_size": 1},
        {"ensemble_size": 3},
        {"ensemble_size": 64},
        {"n": 4, "sampler": "monte_carlo"},
        {"n": 1, "sampler": "monte_carlo"},
        {"on_failure": "raise"},
    ],
    ids=str,
)
def test_an_error_of_the_program_ends_the_study_at_the_first_samples(model, options):
    options = {"n": 256} | options
    with pytest.raises(Exception) as caught:
        study(model, **options)
    assert len(CALLS) <= 128
    text = str(caught.value)
    if options.get("on_failure") != "raise" or model in (misspelt_attribute, misspelt_item):
        assert "stiffness, load" in text
    if model not in (misspelt_attribute, misspelt_item):
        assert isinstance(caught.value.__cause__, Exception) and str(caught.value.__cause__) in text
        assert not isinstance(caught.value.__cause__, uq.SampleError)


@pytest.mark.parametrize("executor", ["threads", 2])
@pytest.mark.parametrize("model", [missing_key, own_exception, misspelt_attribute])
def test_it_ends_on_executors_too(model, executor):
    from concurrent.futures import ThreadPoolExecutor

    pool = (lambda: ThreadPoolExecutor(2)) if executor == "threads" else executor
    with pytest.raises((uq.SampleError, AttributeError), match="stiffness, load") as caught:
        en.propagate(en.vectorize(model), INPUTS, 512, seed=1, progress=False, executor=pool, ensemble_size=16)
    if model is missing_key:
        assert isinstance(caught.value.__cause__, KeyError)
        assert "missing_key" in "".join(caught.value.__notes__)


def test_samples_of_run_are_judged_alike():
    with pytest.raises(uq.SampleError, match=r"on all \(samples 0, .*\): KeyError: 'stel'. The inputs are stiff"):
        en.propagate(lambda x: en.run(lambda load: TABLE["stel"] * load, x.load), INPUTS, 64, seed=1, progress=False)


def test_mask_takes_all_of_them_for_failed_samples():
    result = study(missing_key, on_failure="mask")
    assert result.n_failed == 256 and len(CALLS) == 256


@pytest.mark.parametrize("model", [misspelt_attribute, misspelt_item])
def test_an_input_that_does_not_exist_ends_it_whatever_is_done_with_failures(model):
    with pytest.raises(AttributeError, match="stiffness, load"):
        study(model, on_failure="mask")
    assert len(CALLS) == 1


def test_a_model_may_ask_whether_there_is_an_input():
    result = study(lambda x: x.load * getattr(x, "factor", 2.0) + hasattr(x, "length"))
    assert result.n_failed == 0


@pytest.mark.parametrize("options", [{}, {"on_failure": "retry"}, {"group_by": "load", "ensemble_size": 32}], ids=str)
def test_a_region_of_failure_is_no_error_of_the_program(options):
    def limited(x):
        if x.load < 0.7:
            raise ValueError(f"the load {x.load:.3f} is too small")
        return x.load

    result = study(limited, **options)
    assert result.n_failed == np.count_nonzero(INPUTS.samples(256, seed=1).load.samples < 0.7)


def test_the_same_text_on_some_of_the_first_samples_is_none_either():
    def limited(x):
        if x.load < 0.5:
            raise ValueError("the load is too small")
        return x.load

    assert 0 < study(limited, ensemble_size=1).n_failed < 256


def test_outcomes_that_were_held_back_are_kept_where_the_study_ends_otherwise():
    def interrupted(x):
        if len(CALLS) > 3:
            raise KeyboardInterrupt
        raise ValueError("no")

    with pytest.raises(KeyboardInterrupt) as caught:
        study(interrupted, ensemble_size=1)
    assert caught.value.result.n_done == 3 and caught.value.result.n_failed == 3


def test_the_store_of_a_wrong_model_is_taken_away_and_the_mended_one_runs(tmp_path):
    for model in (missing_key, misspelt_attribute):
        with pytest.raises((uq.SampleError, AttributeError)):
            study(model, store=tmp_path / "run.zarr")
        assert not (tmp_path / "run.zarr").exists()
    assert study(lambda x: x.load, store=tmp_path / "run.zarr").n_failed == 0


def test_a_resumed_study_whose_first_part_ran_goes_on(tmp_path):
    """Samples that failed alike beyond a limit of the model are no news of the program."""

    def limited(x):
        if len(CALLS) > 64:
            raise ConnectionError("licence server down")
        return x.load

    study(limited, 64, store=tmp_path / "run.zarr")
    result = study(limited, 128, store=tmp_path / "run.zarr", resume="force")
    assert result.n_failed == 64


def test_more_samples_are_not_drawn_while_none_succeeds():
    result = study(missing_key, "auto", target={"y": 0.1}, on_failure="mask")
    assert result.n == 256 and not result.target_met


def test_a_plain_sample_can_be_sent_and_names_its_inputs():
    sample = INPUTS.samples(8, seed=1).sample(2)
    again = pickle.loads(pickle.dumps(sample))
    assert again == sample and repr(again) == repr(sample)
    with pytest.raises(KeyError, match="PlainSample: name must be one of stiffness, load; got 'x'"):
        sample["x"]
    with pytest.raises(AttributeError, match="PlainSample has no input 'x'; it has stiffness, load"):
        _ = sample.x
