"""Run data-apis/array-api-tests on the lifted namespaces and compare with the bare library: `make conformance`.

The suite is not part of this repository. Clone it with its submodule and name the folder::

    git clone --recursive https://github.com/data-apis/array-api-tests
    make conformance SUITE=array-api-tests

A test that the bare library fails is listed in ``xfails_<library>.txt`` with the reason. Anything else that fails is an
error here, in every mode (`subject` says what the modes are).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MODES = ("shared", "equal", "isolation 0", "isolation 1", "isolation 2")


def run_suite(suite: Path, base: str, mode: str, version: str, max_examples: int, xfails: bool) -> dict[str, str]:
    """The outcome of every test of the suite, by its name."""
    kind, _, shown = mode.partition(" ")
    environment = os.environ | {
        "ENSEMBLE_BASE": base,
        "ENSEMBLE_MODE": kind,
        "ENSEMBLE_SAMPLE": shown or "0",
        "ARRAY_API_TESTS_VERSION": version,
        "ARRAY_API_TESTS_MODULE": "exec('from subject import xp')",
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        "ARRAY_API_TESTS_XFAIL_MARK": "skip",
        "PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT))),
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
        command += ["-p", "no:warnings", "array_api_tests", f"--max-examples={max_examples}", "--derandomize"]
        command += ["--disable-deadline", "--json-report", f"--json-report-file={report}"]
        known = HERE / f"xfails_{base}.txt"
        if xfails and known.exists():
            command.append(f"--xfails-file={known}")
        log = Path(folder, "log.txt")
        with log.open("w") as output:
            subprocess.run(command, cwd=suite, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
        if not report.exists():
            raise SystemExit(f"conformance: the suite did not run.\n{log.read_text()[-3000:]}")
        tests = json.loads(report.read_text())["tests"]
        if os.environ.get("ENSEMBLE_LOG"):
            Path(os.environ["ENSEMBLE_LOG"]).write_text(log.read_text())
    return {test["nodeid"]: test["outcome"] for test in tests}


def expected_failures(base: str) -> set[str]:
    """The tests that the list of the bare library names."""
    path = HERE / f"xfails_{base}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def main() -> int:
    """Judge one library in the modes asked for; the exit code says whether anything failed that must not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--base", default="numpy", choices=["numpy", "array_api_strict", "torch", "jax"])
    parser.add_argument("--modes", nargs="*", default=list(MODES), help="of: base, shared, equal, isolation 0, ...")
    parser.add_argument("--api-version", default="2025.12", help="of the standard: 2025.12 (default), 2024.12, ...")
    parser.add_argument("--max-examples", type=int, default=8)
    parser.add_argument("--record", action="store_true", help="write the counts into passes.json")
    chosen = parser.parse_args()
    table_path = HERE / "passes.json"
    table = json.loads(table_path.read_text()) if table_path.exists() else {}
    listed = expected_failures(chosen.base)
    bad = 0
    for mode in chosen.modes:
        # The bare library is judged without the list: what it fails is what the list must say.
        outcomes = run_suite(
            chosen.suite.resolve(), chosen.base, mode, chosen.api_version, chosen.max_examples, xfails=mode != "base"
        )
        counts = Counter(outcomes.values())
        failed = sorted(name for name, outcome in outcomes.items() if outcome not in ("passed", "skipped"))
        inherited = sum(outcome == "skipped" and name in listed for name, outcome in outcomes.items())
        found = f"{counts['passed']} passed, {len(failed)} failed, {inherited} as the library"
        print(f"{chosen.base}, {chosen.api_version}, {mode}: {found}")
        for name in failed:
            print("   ", name)
        bad += len(failed) if mode != "base" else 0
        row = {"examples": chosen.max_examples, "passed": counts["passed"], "failed": len(failed)}
        row["inherited"] = inherited
        if chosen.api_version != "2025.12":
            mode = f"{mode}, {chosen.api_version}"
        table.setdefault(chosen.base, {})[mode] = row | {"skipped": counts["skipped"] - inherited}
    if chosen.record:
        table_path.write_text(json.dumps(table, indent=1) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
