"""The benchmark beside Trilinos runs without Trilinos."""

from benchmarks import bench_distributed, trilinos_peer


def test_without_trilinos_the_part_says_so_and_measures_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trilinos_peer, "HEADERS", tmp_path)
    monkeypatch.setattr(bench_distributed, "write_ensembles", None)  # would be called
    bench_distributed.trilinos(type("Options", (), {"cells": [4]}))
    assert "not installed" in capsys.readouterr().out
