"""The tutorial on serving says what is so: its programs run, and print what it shows."""

import pathlib
import re
import sys

import pytest

from tests.gateway.gatelab import KEY, Lab

TUTORIAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "serve.md"
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


def test_the_tutorial_has_programs() -> None:
    """Every program of the tutorial stands before what it prints."""
    assert len(PROGRAMS) == TUTORIAL.read_text().count("```python") == 3


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_programs_of_the_tutorial(lab: Lab, program: str, output: str) -> None:
    """A program of the tutorial, with the variables that it names, prints what the tutorial shows."""
    env = {
        "OPENAI_BASE_URL": f"{lab.url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": lab.url,
        "ANTHROPIC_API_KEY": KEY,
    }
    running = lab.daemon.program([sys.executable, "-P", "-c", program], env)
    done = running.end()
    lab.daemon.forget(running)
    assert (done.status, done.err, done.out) == (0, "", output)
