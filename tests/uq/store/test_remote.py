"""Stores on object stores: in memory everywhere, on an S3 server (moto) where that is installed."""

import logging
import socket
import uuid

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.store.remote import Folder, RemoteStore, is_url
from tests.uq.store.trees import tree

fsspec = pytest.importorskip("fsspec")

INPUTS = en.Inputs(a=stats.norm(), b=stats.uniform())


def model(x):
    x.fail(x.a > 2.2, "too large")
    return {"y": x.a + x.b, "line": en.Ensemble(np.arange(3.0)[:, None] * x.a.samples)}


def run(n=128, **options):
    return en.propagate(model, INPUTS, n, **{"seed": 20731, "progress": False, "ensemble_size": 32} | options)


@pytest.fixture
def url():
    """A folder of its own in the memory of this process."""
    name = f"bucket/{uuid.uuid4().hex}/run.zarr"
    yield f"memory://{name}"
    files = fsspec.filesystem("memory")
    if files.exists(f"/{name.rpartition('/')[0]}"):
        files.rm(f"/{name.rpartition('/')[0]}", recursive=True)


def objects(url):
    """Every object below a URL."""
    files, root = fsspec.core.url_to_fs(url)
    return {name[len(root) :].lstrip("/"): files.cat_file(name) for name in files.find(root)}


def zarr_files(found):
    return {name: contents for name, contents in found.items() if not name.startswith(".ensemble")}


def same(first, second):
    """Whether two results have the same bits."""
    return (
        first.n == second.n
        and all(np.array_equal(first.values(name), second.values(name), equal_nan=True) for name in ("y", "line"))
        and all(float(first.mean("y")) == float(one.mean("y")) for one in (second,))
        and first.reasons == second.reasons
    )


def test_a_study_has_the_bits_and_the_files_of_a_local_one(url, tmp_path):
    local, remote = run(store=tmp_path / "run.zarr"), run(store=url)
    assert same(local, remote) and same(local, en.uq.open_study(url))
    assert zarr_files(objects(url)) == zarr_files(tree(tmp_path / "run.zarr"))
    stored = [name for name in objects(url) if name.startswith(".ensemble/groups/")]
    assert len(stored) == 1  # four groups, packed at the end


def test_a_study_is_extended_elsewhere_to_the_files_of_one_run(url, tmp_path):
    run(64, store=url)
    assert same(run(128, store=url, resume=True), run(store=tmp_path / "run.zarr"))
    assert zarr_files(objects(url)) == zarr_files(tree(tmp_path / "run.zarr"))


def test_failed_samples_run_again_elsewhere(url, tmp_path):
    faults = {"on": True}

    def faulty(x):
        if faults["on"]:
            x.fail(x.b > 0.7, "no licence")
        return model(x)

    for place in (url, tmp_path / "run.zarr"):
        faults["on"] = True
        options = {"seed": 20731, "progress": False, "ensemble_size": 32, "store": place, "on_failure": "mask"}
        assert en.propagate(faulty, INPUTS, 128, **options).n_failed > 20
        faults["on"] = False
        found = en.propagate(faulty, INPUTS, 128, resume="force", retry_failed=True, **options)
        again = en.uq.open_study(place)
        assert same(found, run()) and same(again, run())
        assert max(again.attempts) == 2 and "no licence" in next(iter(again.earlier_reasons.values()))[0]
    assert zarr_files(objects(url)) == zarr_files(tree(tmp_path / "run.zarr"))


def test_the_group_opens_in_other_programs(url):
    xarray = pytest.importorskip("xarray")
    remote = run(store=url)
    with xarray.open_zarr(url, chunks=None) as found:
        assert np.array_equal(found.y.values, remote.values("y"), equal_nan=True) and found.sizes["sample"] == 128


class Killed(BaseException):
    """The end of a process."""


def counted(original, seen, count):
    def change(self, *arguments):
        if seen[0] == count:
            raise Killed
        seen[0] += 1
        return original(self, *arguments)

    return change


def dies_at(monkeypatch, count):
    """Let a process end at the change number `count` of the server, before it; the number of changes so far."""
    seen = [0]
    for name in ("write", "write_file", "remove"):
        monkeypatch.setattr(Folder, name, counted(getattr(Folder, name), seen, count))
    return seen


def n_changes(monkeypatch, url, **options):
    with monkeypatch.context() as patched:
        seen = dies_at(patched, -1)
        run(store=url, **options)
    return seen[0]


@pytest.mark.parametrize("extended", [False, True], ids=["new", "extended"])
def test_a_kill_at_any_change_of_the_server_loses_no_group_and_leaves_no_half_one(url, tmp_path, monkeypatch, extended):
    """29 and 31 kills: before every object that is put, and before every removal."""
    options = {"ensemble_size": 16, "n": 64}
    old = zarr_files(tree(tmp_path / "old.zarr")) if run(32, store=tmp_path / "old.zarr") and extended else {}
    whole, first = run(**options, store=tmp_path / "run.zarr"), f"{url}-first"
    new = zarr_files(tree(tmp_path / "run.zarr"))

    def begin(place):
        if extended:
            run(32, store=place)
        return {**options, "resume": extended}

    total = n_changes(monkeypatch, first, **begin(first))
    assert total > 20
    for count in range(total):
        place = f"{url}-{count}"
        more = begin(place)
        with monkeypatch.context() as patched:
            dies_at(patched, count)
            with pytest.raises(Killed):
                run(store=place, **more)
        found = objects(place)
        if "zarr.json" in found:  # what other programs open is whole: the old group or the new one
            assert zarr_files(found) in (old, new)
        if RemoteStore.exists(place):
            there = en.uq.open_study(place)
            good = there.ids[:0] if there.n_done == 0 else there.ids
            assert np.array_equal(there.done, np.isin(np.arange(there.n), np.flatnonzero(there.done)))
            if good.size:
                assert np.array_equal(there.samples("y").samples, whole.values("y")[good])
        resumed = run(store=place, **{**more, "resume": RemoteStore.exists(place)})
        assert same(resumed, whole)
        assert zarr_files(objects(place)) == new


def test_a_reader_sees_the_groups_that_are_there(url):
    study = en.plan(INPUTS, 64, seed=20731, ensemble_size=16, store=url)
    for k, group in enumerate(study.groups()):
        study.tell(group, model(group.samples))
        there = en.uq.open_study(url)
        assert there.n_done == 16 * (k + 1)
    page = en.uq.open_study(url).report().html
    assert "Finished: all 64 samples" in page
    study.close()


def test_groups_that_are_packed_while_they_are_read_are_read_again(url, monkeypatch):
    study = en.plan(INPUTS, 64, seed=20731, ensemble_size=16, store=url)
    for group in study.groups():
        study.tell(group, model(group.samples))
    original, packed = Folder.names, []

    def names(self, folder):
        found = original(self, folder)
        if not packed:
            packed.append(True)
            study.close()
        return found

    monkeypatch.setattr(Folder, "names", names)
    assert en.uq.open_study(url).n_done == 64 and packed


def test_two_writers_run_samples_twice_and_spoil_nothing(url):
    first = en.plan(INPUTS, 64, seed=20731, ensemble_size=32, store=url)
    second = en.plan(INPUTS, 64, seed=20731, ensemble_size=32, store=url, resume=True)
    for study in (first, second):
        for group in study.groups():
            study.tell(group, model(group.samples))
    second.close()
    first.close()
    assert same(en.uq.open_study(url), run(64))


def test_an_algorithm_goes_on_from_an_object_store(url):
    def log_density(z):
        return -0.5 * z[0] ** 2

    whole = en.uq.mcmc(log_density, 1, 6, n_chains=8, seed=20731)
    en.uq.mcmc(log_density, 1, 3, n_chains=8, seed=20731, store=url)
    longer = en.uq.mcmc(log_density, 1, 6, n_chains=8, seed=20731, store=url, resume=True)
    assert np.array_equal(whole.chain.samples, longer.chain.samples)


def test_indices_are_read_from_an_object_store(url):
    made = en.sobol_indices(lambda x: {"y": x.a + x.b}, INPUTS, 64, seed=5, store=url, progress=False)
    assert np.array_equal(en.uq.open_indices(url).first["y"], made.first["y"])


def test_a_study_that_ends_at_once_leaves_nothing(url):
    def wrong(x):
        return x.nothing

    with pytest.raises(AttributeError):
        en.propagate(wrong, INPUTS, 64, seed=5, store=url, progress=False)
    assert objects(url) == {}


@pytest.mark.parametrize(
    "place, message",
    [
        ("memory://nowhere/none.zarr", "path must be a stored study; got memory://nowhere/none.zarr"),
        ("nothing://bucket/run.zarr", "store must be a URL that fsspec knows; got 'nothing://bucket/run.zarr'"),
    ],
)
def test_what_cannot_be_opened_is_named(place, message):
    with pytest.raises(ValueError, match=message):
        en.uq.open_study(place)


def test_a_study_that_is_there_and_other_objects_are_not_overwritten(url):
    run(store=url)
    with pytest.raises(ValueError, match="path must be a new one; got a study at memory://"):
        run(store=url)
    other = f"{url}-other"
    fsspec.filesystem("memory").pipe_file(f"{other.partition('://')[2]}/data.csv", b"1")
    with pytest.raises(ValueError, match="path must be without objects; got"):
        run(store=other)
    with pytest.raises(ValueError, match="seed: stored 20731, given 5"):
        run(store=url, resume=True, seed=5)


def test_a_damaged_group_is_an_error_and_no_value(url):
    study = en.plan(INPUTS, 64, seed=20731, ensemble_size=16, store=url)
    for group in study.groups():
        study.tell(group, model(group.samples))
    files, root = fsspec.core.url_to_fs(url)
    name = sorted(files.ls(f"{root}/.ensemble/groups", detail=False))[1]
    contents = bytearray(files.cat_file(name))
    contents[-20] ^= 1
    files.pipe_file(name, bytes(contents))
    with pytest.raises(ValueError, match="the journal must hold whole records"):
        en.uq.open_study(url)
    study.close()


@pytest.mark.parametrize("place, there", [("s3://b/run", True), ("gs://b/r", True), ("/a/b", False), ("C:/a", False)])
def test_urls_are_told_from_folders(place, there):
    assert is_url(place) == there


# --- a server of S3
@pytest.fixture(scope="module")
def server():
    """The endpoint of moto's server, and its log of requests."""
    pytest.importorskip("s3fs")
    threaded = pytest.importorskip("moto.server")
    server = threaded.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    import s3fs

    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(name)
    yield f"s3://{name}/run.zarr"
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_study_on_s3_has_the_bits_and_the_files_of_a_local_one(bucket, tmp_path):
    local = run(64, store=tmp_path / "run.zarr")
    run(32, store=bucket)
    assert same(run(64, store=bucket, resume=True), local)
    assert same(en.uq.open_study(bucket), local)
    assert zarr_files(objects(bucket)) == zarr_files(tree(tmp_path / "run.zarr"))


def test_a_kill_on_s3_loses_no_group(bucket, tmp_path, monkeypatch):
    whole = run(64, store=tmp_path / "run.zarr")
    with monkeypatch.context() as patched:
        dies_at(patched, 2)  # the manifest and one group are there
        with pytest.raises(Killed):
            run(64, store=bucket)
    assert en.uq.open_study(bucket).n_done == 32
    assert same(run(64, store=bucket, resume=True), whole)


def test_what_s3_refuses_is_named(bucket):
    other = bucket.replace("bucket-", "none-")
    with pytest.raises(OSError, match=r"store must be reachable and permit it; got .*none-"):
        run(32, store=other)


class Lines(logging.Handler):
    """The requests in the server's log."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_requests_are_as_few_as_the_page_says(bucket):
    """One for each group, and at the end one for each file; of a reader, one for each object and six."""
    log, requests = Lines(), logging.getLogger("werkzeug")
    requests.addHandler(log)
    try:
        run(128, store=bucket)
        written, log.lines = log.lines, []
        en.uq.open_study(bucket)
    finally:
        requests.removeHandler(log)
    puts = sum("PUT /" in line for line in written)
    assert puts == 4 + 1 + len(zarr_files(objects(bucket))) + 3  # groups, pack, files, manifest twice, costs
    assert 0 < len(written) - puts <= 12
    assert 0 < len(log.lines) <= 1 + 6


# --- a server of Google's storage
@pytest.fixture
def google_bucket(monkeypatch):
    gcsfs, emulator = pytest.importorskip("gcsfs"), pytest.importorskip("gcp_storage_emulator.server")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield "gs://bucket/run.zarr"
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


def test_a_study_on_googles_storage_has_the_bits_and_the_files_of_a_local_one(google_bucket, tmp_path, monkeypatch):
    local = run(64, store=tmp_path / "run.zarr")
    with monkeypatch.context() as patched:
        dies_at(patched, 2)  # the manifest and one group are there
        with pytest.raises(Killed):
            run(64, store=google_bucket)
    assert en.uq.open_study(google_bucket).n_done == 32
    assert same(run(64, store=google_bucket, resume=True), local)
    assert same(en.uq.open_study(google_bucket), local)
    assert zarr_files(objects(google_bucket)) == zarr_files(tree(tmp_path / "run.zarr"))
    with pytest.raises(OSError, match=r"store must be reachable and permit it; got .*gs://none"):
        run(32, store="gs://none/run.zarr")
