"""Run the tests, and those that failed once more by themselves.

usage: python .ci/unit.py [arguments of pytest]

A test that passes only the second time is named loudly, and is a bug to be filed; it does not stop the
work of others. More than RERUN_MAX failures are no accident and fail at once, and so does a run that
pytest itself could not finish.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from typing import NamedTuple

RERUN_MAX = 10  # failed tests that are run again
RUN_SECONDS = 1800.0  # the whole run; each test has its own, much smaller bound
OK, FAILED = 0, 1  # exit statuses of pytest after which its results can be trusted
CACHE = pathlib.Path(".pytest_cache") / "unit"
COUNTED = ("passed", "failed", "errors", "skipped")


class Run(NamedTuple):
    """How one run of pytest ended.

    Args:
        status: its exit status; None if it had to be killed.
        failed: the tests that failed, as pytest names them.
        counts: tests by outcome.
    """

    status: int | None
    failed: list[str]
    counts: Counter[str]


def run(arguments: list[str]) -> Run:
    """Run pytest once, its output going where ours goes."""
    report = CACHE / "report.xml"
    report.unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={CACHE}", f"--junit-xml={report}"]
    process = subprocess.Popen([*pytest, *arguments], stdin=subprocess.DEVNULL)
    try:
        status: int | None = process.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        status = None
    return Run(status, failures(), counts(report))


def failures() -> list[str]:
    """The tests that pytest noted as failed."""
    noted = CACHE / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text())) if noted.exists() else []


def counts(report: pathlib.Path) -> Counter[str]:
    """Tests by outcome, from the report of a run; empty if the run wrote none."""
    if not report.exists():
        return Counter()
    number: Counter[str] = Counter()
    for suite in ElementTree.parse(report).iter("testsuite"):
        told = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        number += Counter(failed=told["failures"], errors=told["errors"], skipped=told["skipped"])
        number += Counter(passed=told["tests"] - told["failures"] - told["errors"] - told["skipped"])
    return number


def again(first: Run, arguments: list[str], started: float) -> int:
    """Run the failed tests once more, say which they were, and give the exit status of the whole."""
    print(f"\nrnixfs: {len(first.failed)} failed; running these once more, by themselves:", flush=True)
    print(*(f"    {test}" for test in first.failed), sep="\n", flush=True)
    second = run(["--last-failed", "--last-failed-no-failures=none", *arguments])
    late = [test for test in first.failed if test not in second.failed]
    if second.status not in (OK, FAILED) or second.counts.total() < len(first.failed):
        print("rnixfs: the second try could not be finished")
        return 1
    if late:
        print("\n" + "!" * 80 + "\nrnixfs: passed only at the second try (each is a bug to be filed):")
        print(*(f"    {test}" for test in late), sep="\n")
        print("!" * 80)
    total = Counter(passed=first.counts["passed"], skipped=first.counts["skipped"]) + second.counts
    words = ", ".join(f"{total[name]} {name}" for name in COUNTED if total[name])
    print(f"{words} in {time.monotonic() - started:.2f}s ({len(late)} of them only at the second try)")
    return 1 if second.failed else 0


def main(arguments: list[str]) -> int:
    """Run everything; the exit status is 0 only if each test passed at its first or second try."""
    started = time.monotonic()
    shutil.rmtree(CACHE, ignore_errors=True)  # failures of an earlier run are not failures of this one
    CACHE.mkdir(parents=True)
    first = run(arguments)
    if first.status == OK and first.counts.total():
        return 0
    if first.status is None:
        print(f"rnixfs: the tests took more than {RUN_SECONDS:.0f} s and were ended")
        return 1
    if first.status != FAILED or not first.failed:
        print(f"rnixfs: pytest itself failed (exit status {first.status})")
        return 1
    if len(first.failed) > RERUN_MAX:
        print(f"rnixfs: {len(first.failed)} tests failed, too many for a second try")
        return 1
    return again(first, arguments, started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
