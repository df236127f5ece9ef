"""The benchmark: that it runs whole, and that its figures mean what they say. How fast anything is, no test
says: a loaded machine would fail it."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from bench import figures, run
from bench.figures import CROSS, OPERATIONS, OURS, PROCFS, SAME, TMPFS, C, Figures, Load, Sample
from bench.log import __main__ as log_main
from bench.log import folders, peer, rate, recorded, restart, runs, size, steps
from bench.servers import BenchError
from rnixfs.state.memory import MemoryStore
from rnixfs.state.opening import LEVELS

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 300  # a quick round takes about twenty on an idle machine
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


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    """What `bench/run.sh --quick` prints and reports; it has left no mount and no file."""
    folder = tmp_path_factory.mktemp("bench")
    temporary, report = folder / "tmp", folder / "figures.json"
    temporary.mkdir()
    done = bench(temporary, "--quick", "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(temporary) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(temporary.iterdir()) == []
    return done.stdout, json.loads(report.read_text())


@pytest.mark.timeout(SECONDS + LEAVE_SECONDS + 15)
def test_a_quick_round_measures_every_operation(quick: tuple[str, dict]) -> None:
    """`bench/run.sh --quick` has a figure for each operation at each server, and says the three ratios in its
    last line."""
    printed, found = quick
    same = found["layouts"][SAME]
    assert list(same) == [operation.name for operation in OPERATIONS]
    for operation in OPERATIONS:
        assert {OURS, C} <= set(same[operation.name]) <= set(operation.servers())
    assert all(sample["p99"] >= sample["p50"] > 0 for sample in found["samples"])
    ratios = {name: same[name][OURS]["ratio"] for name in ("orc", "stat", "pread")}
    assert printed.splitlines()[-1] == (
        f"orc ratio {ratios['orc']:.2f} (target 1.60), "
        f"stat ratio {ratios['stat']:.2f}, pread ratio {ratios['pread']:.2f}"
    )
    assert [load["readers"] for load in found["loads"]] == [0, run.QUICK.readers]
    assert all(load["rss_kib"] > 0 for load in found["loads"])


def table(printed: str, title: str) -> dict[str, list[str]]:
    """The rows of the table whose title begins so: by the words at the beginning of each, its figures."""
    lines = printed.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(title))
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[start : lines.index("", start)][2:]]
    return {row[0]: row[1:] for row in rows}


def number(text: str) -> float:
    """A figure of a table."""
    return float(text.replace(",", ""))


@pytest.mark.timeout(SECONDS + LEAVE_SECONDS + 15)
def test_a_quick_round_measures_the_log(quick: tuple[str, dict]) -> None:
    """Each part of the log has its table, with a row for everything that is compared; what needs a network is
    said not to be measured."""
    printed, _ = quick
    step, disk, start = (
        table(printed, title) for title in ("one step of 5", "5 steps on disk", "a start with a history")
    )
    assert list(step) == [steps.MEMORY, steps.NORMAL, steps.FULL]
    assert list(disk) == [make(1).name for make in runs.KINDS]
    assert list(start) == [restart.NOTHING, "30 in history", "the same and 4 unfinished"]
    assert all(number(row[0]) > 0 and number(row[1]) > 0 for row in step.values())
    assert all(number(figure) > 0 for row in disk.values() for figure in row)
    assert "LangGraph's checkpointer: NOT MEASURED" in printed
    assert re.search(
        r"^log step ratio [\d.]+ normal, [\d.]+ full; langgraph not measured; size", printed, re.M
    )


@pytest.mark.timeout(SECONDS + LEAVE_SECONDS + 15)
def test_a_quick_round_counts_events(quick: tuple[str, dict]) -> None:
    """Events a second are there for each way to append and each level, beside the plain loop's."""
    lines = quick[0].splitlines()
    ways = (rate.SINGLE, rate.BATCHED)
    for way, level in [(way, level) for way in ways for level in (*LEVELS, rate.MEMORY)]:
        (row,) = [line[len(way) :].split() for line in lines if line.startswith(way) and f" {level} " in line]
        assert number(row[1]) > 0
        assert row[2:] == ["-", "-"] if level == rate.MEMORY else number(row[3]) > 0


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


# --- the log ---


def step_samples(who: str, *means: float, size: int = 0) -> list[steps.Sample]:
    """One run a round."""
    return [steps.Sample(who, turn, runs.Pace(mean, mean), size) for turn, mean in enumerate(means)]


def test_a_step_is_compared_within_rounds() -> None:
    """What the disk costs is the median of the rounds' ratios and differences, not of their medians."""
    found = steps.Steps(
        step_samples(steps.MEMORY, 10, 100, 20)
        + step_samples(steps.NORMAL, 12, 110, 30)
        + step_samples(steps.FULL, 20, 200, 60, size=100),
        5,
        50,
    )
    assert found.ratio(steps.FULL, steps.MEMORY, lambda sample: sample.pace.mean) == 2.0
    assert found.more(steps.NORMAL) == 10
    assert found.summary() == "log step ratio 1.20 normal, 2.00 full; langgraph not measured"
    assert len(found.rows()) == 4


def test_langgraph_stands_beside_where_it_was_measured() -> None:
    """Once it was measured, its rows are there, and the ratios of our time and bytes at `full` to its own."""
    theirs = [
        one
        for place, who in enumerate(peer.VARIANTS)
        for one in step_samples(who, 1 + place, size=1000 if who in peer.ON_DISK else 0)
    ]
    ours = [one for who in steps.OURS for one in step_samples(who, 4, size=100)]
    found = steps.Steps(ours + theirs, 5, 50)
    assert [row.split("  ")[0] for row in found.beside_rows()[1:]] == [
        steps.NORMAL,
        steps.FULL,
        *peer.ON_DISK,
    ]
    assert found.beside_rows()[2].split()[-2:] == ["100", "2.00"]
    assert found.summary().endswith(
        "beside langgraph 4.0 to 2.0 ms a step (ratio 2.00), of which 0.0 to 1.0 for the disk, "
        "100 to 1,000 bytes (ratio 0.100)"
    )


def test_the_program_of_langgraph_is_told_the_messages(tmp_path: pathlib.Path) -> None:
    """It gets a file of the messages, a folder and the names of its runs; what it prints of each counts."""
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "_, alone, program, told, folder, *names = sys.argv\n"
        "assert alone == '-I' and program.endswith('checkpointer.py')\n"
        "for name in names:\n"
        "    print(json.dumps({'name': name, 'times': [1.0, 1.5], 'bytes': len(json.load(open(told)))}))\n"
    )
    python.chmod(0o700)
    found = peer.run(str(python), tmp_path / "work", [{"said": "a"}, {"said": "b"}])
    assert found == [(name, [1.0, 1.5], 2) for name in peer.VARIANTS]


@pytest.mark.timeout(SECONDS + 15)
def test_without_a_network_langgraph_is_left_out(tmp_path: pathlib.Path) -> None:
    """Where it cannot be installed the set-up says so, names no Python, and is no failure."""
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    env.pop("PIP_FIND_LINKS", None)
    done = subprocess.run(
        ["bash", str(ROOT / "bench" / "langgraph.sh"), str(tmp_path / "langgraph")],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "rnixfs: bench: LangGraph will not be measured: " in done.stderr.splitlines()[-1]


def test_a_rate_compares_within_rounds() -> None:
    """Our time in times of the plain loop's is the median over the rounds; memory has nothing beside it."""
    rates = [(50, 100), (10, 40), (30, 90)]
    samples = [
        rate.Sample(rate.SINGLE, "off", plain, rate_)
        for pair in rates
        for plain, rate_ in zip((False, True), pair, strict=True)
    ]
    found = rate.Rates([*samples, rate.Sample(rate.SINGLE, rate.MEMORY, False, 5)])
    assert found.ratio(rate.SINGLE, "off") == 3.0
    assert found.ratio(rate.SINGLE, rate.MEMORY) is None


def test_the_pace_is_from_request_to_request() -> None:
    """A run with one request has no pace."""
    assert runs.Pace.of([1.0, 1.25, 1.5, 2.5]) == runs.Pace(500.0, 250.0)
    with pytest.raises(BenchError):
        runs.Pace.of([1.0])


def test_each_text_counts_once() -> None:
    """Content is every distinct text of the events, at any depth, and every distinct line of the journals."""
    log = MemoryStore()
    log.append_event("spawn", 1, {"uuid": "u", "text": "twelve bytes", "list": [{"again": "twelve bytes"}]})
    log.append_event("boot", 0, {"word": "ä"})
    log.append_journal(1, "trace", b"a line\na line\nno line")
    assert runs.content(log, 1) == runs.Content(1 + 12 + 2, 7 + 7)
    assert size.Size("x", runs.Content(60, 40), 120).ratio == size.TARGET


@pytest.mark.parametrize("make", runs.KINDS)
def test_no_two_steps_have_the_same_texts(make: runs.Made) -> None:
    """What is meant to be distinct content is; a text that came twice would cost nothing to keep."""
    texts = make(100)
    assert len({*texts.said, *texts.read}) == 200


def test_a_recorded_run_can_be_that_of_any_process(tmp_path: pathlib.Path) -> None:
    """Runs that are played into a log differ in names and texts; one that stops leaves a tool without end."""
    log, recording = MemoryStore(), recorded.Recording(tmp_path / "recorded")
    recorded.fill(log, recording, range(1, 3), whole=True)
    recorded.fill(log, recording, range(3, 5), whole=False)
    assert len({entry.uuid for entry in log.finished()}) == 2
    assert log.unfinished() == [3, 4]
    texts = [{record.data["messages"][0]["content"] for record in log.load(pid, ("step",))} for pid in (1, 2)]
    assert len(texts[0]) == recorded.STEPS + 1
    assert len(texts[0] & texts[1]) == 1  # the last words have no mark
    assert [record.event for record in log.load(3)][-1] == "tool_started"
    steps_of_log = [one.event for one in log.load(1, {one.event for one in recording.steps(5)})]
    assert [one.event for one in recording.steps(7)] == (steps_of_log[:5] * 2)[:7]


def test_the_file_system_of_a_folder_is_told() -> None:
    """What the host has mounted at a folder or above is found by name."""
    assert folders.kind(pathlib.Path("/proc/self")) == "proc"
    assert folders.lasting().is_dir()


def test_rounds_of_the_log_can_be_chosen() -> None:
    """--rounds replaces the number of rounds and nothing else; what other parts take is let through."""
    extent, python = log_main.parse(["--quick", "--rounds", "2", "--json", "x", "--langgraph", "p"])
    assert (extent.rounds, extent.steps, python) == (2, log_main.QUICK.steps, "p")
    with pytest.raises(SystemExit):
        log_main.parse(["--rounds", "0"])
