"""The benchmark: that it runs whole, and that its figures mean what they say. How fast anything is, no test
says: a loaded machine would fail it."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from bench import figures, run
from bench.figures import CROSS, OPERATIONS, OURS, PROCFS, SAME, TMPFS, C, Figures, Load, Sample

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 110  # a quick round takes about four on an idle machine
LEAVE_SECONDS = 45


def bench(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run bench/run.sh with this Python; it takes its servers away if it must be ended."""
    env = os.environ | {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    script = ["bash", str(ROOT / "bench" / "run.sh"), *options]
    process = subprocess.Popen(
        script,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=LEAVE_SECONDS)
        raise AssertionError(f"not over within {SECONDS} s:\n{out}{err}") from None
    return subprocess.CompletedProcess(script, process.returncode, out, err)


@pytest.mark.timeout(SECONDS + LEAVE_SECONDS + 15)
def test_a_quick_round_measures_every_operation_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """`bench/run.sh --quick` ends well, has a figure for each operation at each server, says the three ratios
    in its last line, and leaves no mount and no file."""
    folder, report = tmp_path / "tmp", tmp_path / "figures.json"
    folder.mkdir()
    done = bench(folder, "--quick", "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    same = found["layouts"][SAME]
    assert list(same) == [operation.name for operation in OPERATIONS]
    for operation in OPERATIONS:
        assert {OURS, C} <= set(same[operation.name]) <= set(operation.servers())
    assert all(sample["p99"] >= sample["p50"] > 0 for sample in found["samples"])
    ratios = {name: same[name][OURS]["ratio"] for name in ("orc", "stat", "pread")}
    assert done.stdout.splitlines()[-1] == (
        f"orc ratio {ratios['orc']:.2f} (target 1.60), "
        f"stat ratio {ratios['stat']:.2f}, pread ratio {ratios['pread']:.2f}"
    )
    assert [load["readers"] for load in found["loads"]] == [0, run.QUICK.readers]
    assert all(load["rss_kib"] > 0 for load in found["loads"])
    assert str(folder) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(folder.iterdir()) == []


def test_a_failure_is_one_sentence_and_an_exit_status(tmp_path: pathlib.Path) -> None:
    """Programs that are not there end the benchmark with status 1 and a sentence, not with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--programs", str(tmp_path / "missing"), "--quick"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("rnixfs: bench: ")
    assert "Traceback" not in done.stderr


def test_rounds_below_one_are_refused() -> None:
    """A number of rounds that measures nothing is an error of the command line."""
    with pytest.raises(SystemExit):
        run.parse(["--programs", ".", "--rounds", "0"])


def test_rounds_can_be_chosen_with_and_without_quick() -> None:
    """--rounds replaces the number of rounds and nothing else."""
    assert run.extent(run.parse(["--programs", ".", "--rounds", "3"])).rounds == 3
    quick = run.extent(run.parse(["--programs", ".", "--quick", "--rounds", "2"]))
    assert (quick.rounds, quick.readers) == (2, run.QUICK.readers)


def samples(server: str, *times: float, operation: str = "orc", layout: str = SAME) -> list[Sample]:
    """One sample a round."""
    return [Sample(layout, operation, server, number, time, time) for number, time in enumerate(times)]


def test_a_ratio_compares_within_rounds() -> None:
    """A round in which everything was slow counts as any other: the ratio is the median of the rounds'."""
    found = Figures(samples(OURS, 20, 200, 60) + samples(C, 10, 100, 20), [])
    assert found.ratio(SAME, "orc", OURS) == 2.0
    assert found.median(SAME, "orc", OURS) == 60


def test_what_was_not_measured_is_a_dash() -> None:
    """A missing server or layout shows as "-" or not at all, never as a number."""
    found = Figures(samples(OURS, 20) + samples(C, 10), [Load(0, 2048, 0.5)])
    assert found.layouts() == [SAME]
    assert found.ratio(SAME, "orc", TMPFS) is None
    assert found.ratio(CROSS, "orc", OURS) is None
    rows = found.table().splitlines()
    line = next(row for row in rows if row.startswith("open+read+close"))
    assert line.split()[-6:] == ["20.0", "(2.00)", "10.0", "(1.00)", "-", "-"]
    words = "0 blocked readers: 2.0 MiB resident, 0.50 ms of processor time a second"
    assert rows[-1].strip() == words


def test_the_last_line_has_the_three_ratios_and_the_target() -> None:
    """The summary is what other programs look for."""
    all_samples = [
        sample
        for name, ours in (("orc", 15.0), ("stat", 12.0), ("pread", 11.0))
        for sample in samples(OURS, ours, operation=name) + samples(C, 10.0, operation=name)
    ]
    assert Figures(all_samples, []).summary() == (
        "orc ratio 1.50 (target 1.60), stat ratio 1.20, pread ratio 1.10"
    )


def test_procfs_is_measured_only_where_it_has_the_file() -> None:
    """Only operations on `status` have a counterpart in procfs."""
    assert {one.name for one in OPERATIONS if PROCFS in one.servers()} == {"orc", "stat"}
    assert set(figures.SERVERS) == {OURS, C, PROCFS, TMPFS}
