"""`groups`: studies of models that need several ranks each."""

from __future__ import annotations

import contextvars
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from ensemble._check import integer, message, positive, require
from ensemble._keywords import explains_calls
from ensemble.distributed import faults
from ensemble.distributed.agreement import require_communicator, require_same
from ensemble.distributed.dispatch import INTERRUPT, OUTCOME, TASK, Dispatcher, carried_out, packed
from ensemble.distributed.group_calls import Group, ModelOfGroup, begin, finish
from ensemble.distributed.mail import Ended, Mail, pickled

__all__ = ["Groups", "groups"]

END, GONE = "end", "gone"
"""Kinds of messages: a study is over; a rank has heard of it."""

PAUSE = 1e-3
"""Seconds between two looks of rank 0 for messages, while nothing comes."""


@explains_calls("groups")
def groups(comm: Any, ranks_per_group: int, *, seconds: float = 5.0) -> Groups:
    """Return an executor that runs each ensemble of a study on several ranks.

    Every rank of `comm` calls it, and then ``en.propagate(model, ..., executor=distributed.groups(comm, 4))`` with the
    same arguments; ``model(x, comm)`` gets the communicator of its group, and is called with the same `x` on every rank
    of it. Groups take the next ensemble when they are free. Every rank gets the same result. Its bits are those of a
    study on one group, whatever the number of groups.

    The outputs are what `model` returns on rank 0 of its communicator. The other ranks return the same to the bit, or
    None. A sample that fails on one rank, by an exception, by ``x.fail`` or by a value that is not finite, has failed
    on all.

    Parameters
    ----------
    comm : communicator of mpi4py, or what `distributed.serial` gives
    ranks_per_group : int, which divides the number of ranks
    seconds : float, s
        How long ranks wait for the others of their group after one has raised in the model, and at the end of a study
        that an error ended. Ranks inside of a communication cannot be reached: then one message names the cause and all
        ranks are ended. A longer time suits models that compute for long between communications.

    Returns
    -------
    Groups

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range.

    Notes
    -----
    Rank 0 has the study: it draws samples, writes the store and shows the progress, in a thread of its own. Where MPI
    may be called by several threads at the same time (``MPI_THREAD_MULTIPLE``, which mpi4py asks for), another thread
    hands out ensembles at once. Elsewhere rank 0 does so between the ensembles of its own group, and other groups have
    one ensemble in advance; they are idle where an ensemble of rank 0 takes longer than two of theirs.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> from ensemble import distributed
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    >>> workers = distributed.groups(distributed.serial(), 1)
    >>> model = lambda x, comm: {"tip": x.load / comm.Get_size()}
    >>> result = en.propagate(model, inputs, 256, seed=7, executor=workers, progress=False)
    >>> round(float(result.mean("tip")), 3)
    1.0
    """
    require_communicator(comm, "groups")
    n_ranks = comm.Get_size()
    per_group = integer(ranks_per_group, "groups", "ranks_per_group", minimum=1)
    advice = f"Start a multiple of {per_group} ranks, or choose a number that divides {n_ranks}."
    wanted = f"divide the number of ranks, {n_ranks}"
    require(n_ranks % per_group == 0, "groups", "ranks_per_group", wanted, per_group, advice)
    return Groups(comm, per_group, positive(seconds, "groups", "seconds"))


class Groups:
    """Ranks in groups that run ensembles of a study. Made by `groups`.

    Attributes
    ----------
    comm : communicator
        All ranks.
    group_comm : communicator
        The ranks of this rank's group: the second argument of a model.
    n_groups : int
    """

    def __init__(self, comm: Any, per_group: int, seconds: float) -> None:
        self.comm, self.per_group, self.seconds = comm, per_group, seconds
        self.rank, self.n_ranks = comm.Get_rank(), comm.Get_size()
        self.n_groups = self.n_ranks // per_group
        self.roots = list(range(0, self.n_ranks, per_group))
        if self.n_ranks == 1:
            self.group_comm = comm
            return
        faults.watch(comm)
        faults.agree(comm)
        kept = faults.kept_with(comm)
        if "mail" not in kept:
            kept["mail"] = Mail(comm.Dup())
        name = f"groups of {per_group}"
        if name not in kept:  # communicators are few, and freed by none
            part = comm.Split(self.rank // per_group, self.rank)
            kept[name] = part, Mail(part.Dup())
        self.mail: Mail = kept["mail"]
        self.group_comm, group_mail = kept[name]
        self.group = Group(self.group_comm, group_mail, seconds)

    def __repr__(self) -> str:
        return f"groups({self.n_groups} of {self.per_group} ranks)"

    def take_part(
        self,
        model: Callable[..., Any],
        study: Callable[[Callable[[Any], Any], Any], Any],
        arguments: Mapping[str, str],
    ) -> Any:
        """What a study returns, on every rank; raises what it raised, on every rank.

        Parameters
        ----------
        model : callable
            Takes samples and a communicator.
        study : callable
            Called on rank 0 alone: runs the study with a model of one argument and an executor.
        arguments : dict of str to str
            What has to be the same on every rank, as text.

        Raises
        ------
        ValueError
            If `arguments` differ between ranks.
        """
        if self.n_ranks == 1:
            return study(lambda x: model(x, self.comm), None)
        found = self.mail.comm.allgather(dict(arguments))
        for name in arguments:
            require_same([one.get(name) for one in found], "propagate", name)
        self.group.model = model
        try:
            ending = self._lead(study) if self.rank == 0 else self._follow()
        finally:
            self.group.model = None
        kind, content = ending
        if kind == "error":
            raise content
        return content

    # --- rank 0
    def _lead(self, study: Callable[[Callable[[Any], Any], Any], Any]) -> tuple[str, Any]:
        """Run the study in a thread, and this rank's group here."""
        threads = faults.has_threads()
        dispatcher = Dispatcher(self.mail, self.roots, 0 if threads else 1)
        endings: list[tuple[str, Any]] = []
        out_of_model = threading.Event()

        def direct() -> None:
            try:
                endings.append(("result", study(ModelOfGroup(), dispatcher)))
            except BaseException as error:
                endings.append(("error", error))
            dispatcher.wake()
            if endings[0][0] == "error" and not out_of_model.wait(self.seconds):
                self._end_all(endings[0][1], "0")

        context = contextvars.copy_context()
        director = threading.Thread(target=context.run, args=(direct,), name="ensemble-study", daemon=True)
        begin(self.group)
        try:
            director.start()
            with exchanging(dispatcher) if threads else nullcontext(dispatcher.exchange) as exchange:
                self._run_own_tasks(dispatcher, endings, exchange)
            out_of_model.set()
            director.join()
        finally:
            finish(self.group)
        ending = endings[0]
        if ending[0] == "result":
            try:
                content = pickled(ending)
            except Exception as error:
                seen = f"{type(error).__name__}: {error}"
                ending = "error", TypeError(message("propagate", "the result", "be picklable for all ranks", seen))
        if ending[0] == "error":
            content = pickled(("error", Ended.of(ending[1])))
        self._end_others(content, ending)
        return ending

    def _run_own_tasks(
        self, dispatcher: Dispatcher, endings: list[tuple[str, Any]], exchange: Callable[[], bool] | None
    ) -> None:
        """Run the tasks of this rank's group until the study is over; without threads talk to the others between."""
        seconds = 0.5 if exchange is None else PAUSE
        while not endings:
            try:
                active = exchange is not None and exchange()
                task = dispatcher.own_task(0.0 if active else seconds)
                if task is not None and not dispatcher.is_stopped:
                    dispatcher.settle(0, *carried_out(task))
            except KeyboardInterrupt as error:
                dispatcher.stop(error)

    def _end_all(self, error: BaseException, which: str) -> None:
        """End the job, as ranks are in a model although the study is over."""
        why = f"Ranks {which} were in a model {self.seconds:g} s after that. All ranks are ended."
        faults.end_all(error, Ended.of(error).trace, why)

    def _end_others(self, content: bytes, ending: tuple[str, Any]) -> None:
        """Tell all ranks that the study is over, and wait until they know."""
        failed = ending[0] == "error"
        for root in self.roots[1:]:
            self.mail.send(root, END, content)
        self.group.end(content)
        left = set(range(1, self.n_ranks))
        until = time.monotonic() + self.seconds if failed else float("inf")
        while left:
            came = self.mail.wait(until - time.monotonic())
            if came is not None:
                left -= {came.source} if came.kind == GONE else set()
                continue
            self._end_all(ending[1], ", ".join(map(str, sorted(left))))
        self.mail.flush()
        self.group.mail.flush()

    # --- the other ranks
    def _follow(self) -> tuple[str, Any]:
        """Run ensembles until rank 0 ends the study."""
        try:
            content = self._run_tasks() if self.rank in self.roots else self.group.serve()
        except KeyboardInterrupt as error:
            content = self._interrupted(error)
        self.mail.send(0, GONE)
        self.mail.flush()
        self.group.mail.flush()
        kind, ending = pickle.loads(content)
        return kind, ending.from_another_rank() if kind == "error" else ending

    def _run_tasks(self) -> bytes:
        """Run the tasks of this rank's group until the end, which it passes on."""
        tasks: deque[bytes] = deque()
        begin(self.group)
        try:
            while True:
                came = self.mail.wait() if not tasks else self.mail.look()
                if came is None:
                    self.mail.send(0, OUTCOME, packed(*carried_out(tasks.popleft())))
                elif came.kind == TASK:
                    tasks.append(came.content)
                elif came.kind == END:
                    self.group.end(came.content)
                    content: bytes = came.content
                    return content
        finally:
            finish(self.group)

    def _interrupted(self, error: KeyboardInterrupt) -> bytes:
        """Tell rank 0 of an interrupt, and wait for the end of the study."""
        self.mail.send(0, INTERRUPT, Ended.of(error))
        is_root = self.rank in self.roots
        mail, until = self.mail if is_root else self.group.mail, time.monotonic() + self.seconds
        while (came := mail.wait(until - time.monotonic())) is not None:
            if came.kind == END:
                if is_root:
                    self.group.end(came.content)
                content: bytes = came.content
                return content
        faults.end_all(error, Ended.of(error).trace, f"Rank 0 did not end the study within {self.seconds:g} s.")
        raise error


@contextmanager
def exchanging(dispatcher: Dispatcher) -> Iterator[None]:
    """Let a thread talk to the other groups."""
    over = threading.Event()

    def talk() -> None:
        while not over.is_set():
            if not dispatcher.exchange():
                dispatcher.news.wait(PAUSE)
                dispatcher.news.clear()

    thread = threading.Thread(target=talk, name="ensemble-groups", daemon=True)
    thread.start()
    try:
        yield None
    finally:
        over.set()
        thread.join()
