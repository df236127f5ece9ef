"""The benchmark of models: that it runs whole, and that its figures mean what they say."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from bench.models import __main__ as bench
from bench.models import answers
from bench.models.calls import Rival
from bench.models.programs import Streams
from rnixfs.drivers.http import DIALECTS
from rnixfs.wire.sse import EventReader

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 300  # a quick round takes some ten on an idle machine
PATHS = {
    "openai-compat": answers.OPENAI,
    "anthropic": answers.ANTHROPIC,
    "gemini": f"{answers.GEMINI}models/m:generateContent",
}


@pytest.mark.timeout(SECONDS + 20)
def test_a_quick_round_measures_every_driver(tmp_path: pathlib.Path) -> None:
    """Each driver has its row and its part of the last line, and nothing is left behind."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.models", "--quick"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    names = [*DIALECTS, "claude", "cursor"]
    for name in [*names, "script"]:
        assert any(re.match(rf"{name} +\d+\.\d\d ", line) for line in lines), name
    last = next(line for line in lines if line.startswith("models "))
    for name in names:
        assert re.search(rf"\b{name} [+-]\d+\.\d\d ms \(ratio \d+\.\d\d\)", last), name
    assert re.search(r" 20 streams first piece p50 \d+ to \d+ ms, p99 .* us a piece, daemon \d+ MiB$", last)
    assert str(tmp_path) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("driver", DIALECTS)
def test_the_stub_speaks_each_dialect(driver: str) -> None:
    """What the stub sends, whole and in pieces, is an answer to the driver, and the same one."""
    dialect = DIALECTS[driver]("http://127.0.0.1:1/v1")
    whole = dialect.read_answer(answers.whole(PATHS[driver]), b"{}")
    assert (whole.content, whole.output_tokens) == (answers.TEXT, answers.PIECES)
    start, words, end = answers.pieces(PATHS[driver])
    reader, events = dialect.reader(), EventReader()
    heard = [
        [delta.text for data in events.feed(part) for delta in reader.feed(data)]
        for part in words_of(start, words)
    ]
    assert [texts for texts in heard if texts] == [[word] for word in answers.WORDS]
    for data in events.feed(end):
        reader.feed(data)
    streamed = reader.answer(b"{}")
    assert (streamed.content, streamed.output_tokens) == (whole.content, whole.output_tokens)


def words_of(start: bytes, words: list[bytes]) -> list[bytes]:
    """The parts of a stream up to its last word."""
    return [part for part in (start, *words) if part]


def test_a_ratio_compares_within_rounds() -> None:
    """A slow round counts as any other: what is shown is the median of the rounds' ratios and differences."""
    sides = iter([0.02, 0.2, 0.06]), iter([0.01, 0.1, 0.02])
    rival = Rival("d", lambda count: [next(sides[0])] * count, lambda count: [next(sides[1])] * count)
    for _ in range(3):
        rival.run(10)
    assert (round(rival.ratio, 6), round(rival.more_ms, 6)) == (2.0, 40.0)
    assert rival.summary() == "d +40.00 ms (ratio 2.00)"


def test_what_has_no_rival_has_no_ratio() -> None:
    """A driver without anything to compare it with shows its time alone."""
    rival = Rival("script", lambda count: [0.001] * count, None, share=0.1)
    rival.run(10)
    assert rival.row().split() == ["script", "1.00", "-", "-", "-"]
    assert rival.summary() == "script 1.00 ms"


def test_the_figures_of_many_streams() -> None:
    """The last line has both sides: first pieces, whole time, processor time a piece, memory."""
    ours, bare = Streams([0.1] * 98 + [0.3, 0.4], 2.0, 0.1), Streams([0.05] * 100, 1.0, 0.5)
    found = bench.Crowd([ours], [bare], 40 * 1024, 50 * 1024, [1.0])
    assert found.summary() == (
        "100 streams first piece p50 100 to 50 ms, p99 400 to 50 ms, total 2.00 to 1.00 s (ratio 2.00), "
        "200 to 100 us a piece, daemon 50 MiB"
    )


@pytest.mark.parametrize("wrong", [["--rounds", "0"], ["--streams", "0"], ["--streams", "1000000"]])
def test_extents_that_measure_nothing_are_refused(wrong: list[str]) -> None:
    """They are errors of the command line."""
    with pytest.raises(SystemExit):
        bench.parse(wrong)
