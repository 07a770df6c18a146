"""Studies whose ensembles run on groups of ranks: the bits of a serial study, failures, stores."""

import functools

import numpy as np
import pytest

import ensemble as en
from ensemble.distributed.dispatch import Dispatcher, carried_out
from ensemble.distributed.groups import groups
from ensemble.distributed.serial import serial
from tests.distributed import group_studies as studies

pytestmark = pytest.mark.slow  # starts of MPI and compilation of forms: half a minute

ONE = serial()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def on_four(mpi, folder):
    """What each of four ranks found."""
    return mpi(studies.job, 4, str(folder))


@pytest.fixture(scope="module")
def on_three(mpi, on_four, folder):
    """What each of three ranks found, with an MPI that one thread may call; goes on with the store of `on_four`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPI4PY_RC_THREAD_LEVEL", "single")
        return mpi(studies.job_without_threads, 3, str(folder), fresh=True)


@pytest.fixture(scope="module")
def on_one():
    """The same studies on one rank, without MPI."""
    return {"plain": studies.plain(ONE)}


def alone(work, **settings):
    """A study of one rank that knows no communicators."""
    result = en.propagate(lambda x: work(x, ONE), studies.INPUTS, **(studies.SERIAL_STUDY | settings))
    return studies.summary(result)


def test_one_rank_gives_what_a_study_without_groups_gives(on_one):
    assert on_one["plain"]["all", 1] == alone(studies.model)


@pytest.mark.parametrize("kind", ["all", "statistics", "indices"])
@pytest.mark.parametrize("ranks, per_group", [(4, 1), (4, 2), (4, 4), (3, 1), (3, 3)])
def test_every_rank_has_the_bits_of_a_serial_study(kind, ranks, per_group, on_one, on_four, on_three):
    found = on_four if ranks == 4 else on_three
    assert [one["plain"][kind, per_group] for one in found] == ranks * [on_one["plain"][kind, 1]]


@pytest.mark.parametrize("how", ["mark", "nan"])
@pytest.mark.parametrize("ranks", [4, 3])
def test_samples_that_fail_on_one_rank_have_failed_on_all(how, ranks, on_four, on_three):
    expected = alone(functools.partial(studies.failing, how))
    found = [one["failures"][how] for one in (on_four if ranks == 4 else on_three)]
    assert [one[:-1] for one in found] == ranks * [expected]
    assert found[0][3] == [20, 21]
    assert found[0][-1] == ["marked" if how == "mark" else "output 'tip' is not finite"]


@pytest.mark.parametrize("on_failure", ["mask", "retry"])
@pytest.mark.parametrize("how", ["raise", "run"])
def test_exceptions_of_one_rank_fail_what_they_fail_in_a_serial_study(how, on_failure, on_four, on_three):
    expected = alone(functools.partial(studies.failing, how), on_failure=on_failure)
    key = how if on_failure == "mask" else (how, on_failure)
    assert {one["failures"][key][:-1] == expected for one in (*on_four, *on_three)} == {True}
    assert expected[2] >= 1


def test_a_study_that_may_not_fail_raises_the_same_on_every_rank(on_four, on_three):
    for found in (on_four, on_three):
        errors = [one["failures"]["may not fail"] for one in found]
        assert {error[:2] for error in errors} == {errors[0][:2]}
        assert errors[0][0] == "SampleError" and "not finite" in errors[0][1]


def test_outputs_may_be_returned_on_the_first_rank_alone(on_four, on_one):
    assert {one["failures"]["root"][:-1] == on_one["plain"]["all", 1] for one in on_four} == {True}


def test_outputs_that_differ_between_ranks_are_refused(on_four):
    for one in on_four:
        kind, text, _, _ = one["failures"]["local"]
        assert kind == "ProgramError"
        assert "output 'u' must be the same on every rank of a group; got others on ranks 0 and 1" in text


def test_an_error_of_the_program_on_one_rank_ends_the_study_and_names_the_rank(on_four, on_three):
    for ranks, found in ((4, on_four), (3, on_three)):
        for one in found:
            kind, text, notes, _ = one["failures"]["name"]
            assert kind == "NameError" and "undefined_name" in text
            assert f"of {ranks}:" in notes and "Raised on rank" in notes


@pytest.mark.parametrize("how, kind", [("interrupt", "KeyboardInterrupt"), ("exit", "SystemExit")])
def test_an_interrupt_of_one_rank_ends_the_study_on_all_with_what_was_done(how, kind, on_four, on_three):
    for one in (*on_four, *on_three):
        assert one["failures"][how][0] == kind
        assert one["failures"][how][3] is not None and one["failures"][how][3] < studies.N


def test_exceptions_that_cannot_be_pickled_fail_their_ensemble(on_four):
    for one in on_four:
        *_, n_failed, ids, _, _, reasons = one["failures"]["pickle"]
        assert n_failed == studies.SIZE and ids == list(range(16, 32))
        assert reasons == ["NeverPickledError: this and that"]


def test_arguments_that_differ_between_ranks_are_refused(on_four):
    for one in on_four:
        assert one["failures"]["n"][0] == "ValueError"
        assert "n must be the same on every rank; got 256 on rank 0, 257 on rank 1" in one["failures"]["n"][1]


def test_a_study_after_failed_ones_has_its_bits(on_four, on_three, on_one):
    expected = on_one["plain"]["all", 1]
    assert {one["failures"]["after"][:-1] == expected for one in (*on_four, *on_three)} == {True}


def test_one_rank_writes_the_store_and_another_number_goes_on(on_four, on_three, on_one, folder):
    assert {one["stored"][1] for one in on_four} == {studies.N // 2}
    assert {one["stored"] == on_one["plain"]["all", 1] for one in on_three} == {True}
    assert studies.summary(en.uq.open_study(folder / "run.zarr")) == on_one["plain"]["all", 1]


def test_progress_is_shown_once(on_four):
    lines = [one["shown"][0] for one in on_four]
    assert len(lines[0]) == 1 and lines[0][0].startswith("ensemble size") and lines[1:] == [[], [], []]


def test_models_run_in_the_main_thread_of_every_rank(on_four):
    assert {one["shown"][1] for one in on_four} == {True}


def test_the_ensemble_size_that_was_chosen_is_known_on_every_rank(on_four):
    assert len({one["shown"][2] for one in on_four}) == 1


@pytest.mark.parametrize("slow", [0, 3])
def test_groups_take_the_next_ensemble_when_they_are_free(slow, on_four):
    counts = [one["shares"][slow] for one in on_four]
    assert sum(counts) == 16
    assert counts[slow] == min(counts) and counts[slow] <= 2


def test_without_threads_the_other_groups_have_one_ensemble_in_advance(on_three):
    assert {one["threads"] for one in on_three} == {False}
    assert sum(one["shares"] for one in on_three) == 16
    assert min(one["shares"] for one in on_three[1:]) >= 2


def test_no_ensemble_begins_after_the_time(on_four):
    for n_done, seconds in (one["limited"] for one in on_four):
        assert 0 < n_done <= 3 * 4 * studies.SIZE < studies.N
        assert seconds < 2.0


@pytest.mark.parametrize("ranks_per_group", [2, 3])
def test_ranks_that_are_left_over_are_refused(ranks_per_group):
    with pytest.raises(ValueError, match=rf"ranks_per_group must divide the number of ranks, 1; got {ranks_per_group}"):
        groups(ONE, ranks_per_group)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ((4, 1), TypeError, "comm must be a communicator of mpi4py or distributed.serial"),
        ((ONE, 0), ValueError, "ranks_per_group must be"),
        ((ONE, 1.5), TypeError, "ranks_per_group must be"),
    ],
)
def test_arguments_of_groups_are_checked(arguments, error, text):
    with pytest.raises(error, match=text):
        groups(*arguments)


class NoMail:
    """Messages of a single group."""

    def look(self):
        return None


def test_an_interrupt_ends_the_study_also_where_it_hits_between_an_outcome_and_its_future():
    dispatcher = Dispatcher(NoMail(), [0], 0)
    futures = [dispatcher.submit(sum, (1, 2)) for _ in range(2)]
    dispatcher.exchange()
    assert carried_out(dispatcher.own_task(0.0)) == (True, 3)
    dispatcher._running[0].popleft()  # as `settle` does before it gives the future its value
    dispatcher.stop(KeyboardInterrupt())
    assert [type(future.exception(timeout=1.0)) for future in futures] == 2 * [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        dispatcher.submit(sum, (1, 2))


def test_tasks_go_to_the_groups_that_have_fewest():
    sent = []
    mail = NoMail()
    mail.send = lambda root, kind, task: sent.append(root)
    dispatcher = Dispatcher(mail, [0, 2, 4], 1)
    for _ in range(6):
        dispatcher.submit(sum, (1, 2))
    dispatcher.exchange()
    assert sent == [2, 4, 2, 4] and dispatcher.own_task(0.0) is not None and dispatcher.own_task(0.0) is None


def test_seconds_must_be_positive():
    with pytest.raises(ValueError, match="seconds must be"):
        groups(ONE, 1, seconds=-1.0)


def test_an_array_in_place_of_an_ensemble_is_refused_as_in_a_serial_study():
    with pytest.raises(ValueError, match="output 'y' must be an Ensemble or a number"):
        en.propagate(lambda x, comm: np.ones(3), studies.INPUTS, executor=groups(ONE, 1), **studies.SERIAL_STUDY)
