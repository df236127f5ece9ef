"""The benchmark of MCP: that it runs whole, and says so where it cannot."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from bench.mcp import __main__ as bench
from bench.mcp import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 300  # a quick round takes some seconds on an idle machine


@pytest.mark.timeout(SECONDS + 20)
def test_a_quick_round_measures_both_sides(tmp_path: pathlib.Path) -> None:
    """One call and many at once have a row each and a part of the last line, and nothing is left behind."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.mcp", "--quick"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    for count in ("1", f"{bench.CROWD}"):
        assert any(re.match(rf"{count} at once +\d+\.\d\d +\d+\.\d\d ", line) for line in lines), done.stdout
    one = r"[+-]\d+\.\d\d ms \(ratio \d+\.\d\d\)"
    assert re.fullmatch(rf"mcp 1 at once {one}, {bench.CROWD} at once {one}", lines[-1]), lines[-1]
    assert str(tmp_path) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(tmp_path.iterdir()) == []


def test_without_the_server_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    """Where the server is not installed the benchmark says so and goes on."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert programs.server() == ""
    assert bench.main(["--quick"]) == 0
    assert capsys.readouterr().out.startswith("mcp NOT MEASURED: mcp-server-everything is not installed")


def test_rounds_that_measure_nothing_are_refused() -> None:
    """They are an error of the command line."""
    with pytest.raises(SystemExit):
        bench.parse(["--rounds", "0"])
