"""A real daemon with an init.yaml: what it starts by itself, and what it says when that fails."""

import json
import pathlib

from tests.daemon import Daemon, environment, running, until

GOOD = """\
supervisors:
  - name: pair
    required: true
    provider: script
    children:
      - {name: one, intent: wait 500 s}
      - {name: two, intent: wait 500 s}
"""
BAD = GOOD + "  - {name: last, required: true, children: [{name: x, intent: x, agent: nobody}]}\n"


def lay(folder: pathlib.Path, text: str) -> pathlib.Path:
    """Put an init.yaml where the daemon of a folder finds it."""
    config = pathlib.Path(environment(folder)["XDG_CONFIG_HOME"]) / "rnix"
    config.mkdir(parents=True)
    path = config / "init.yaml"
    path.write_text(text)
    return path


def shown(daemon: Daemon) -> dict:
    """`sys/init`, once init has done what it could."""
    until(lambda: json.loads(daemon.out("cat $M/sys/init"))["state"] != "starting", "init is through")
    found: dict = json.loads(daemon.out("cat $M/sys/init"))
    return found


def test_a_daemon_starts_what_its_users_file_names(tmp_path):
    """The supervisor and its children are there without anybody asking, and end with the daemon."""
    path = lay(tmp_path, GOOD)
    with running(tmp_path) as daemon:
        until(lambda: shown(daemon)["state"] != "idle", "init is called")
        found = shown(daemon)
        assert (found["state"], found["files"]) == ("up", [str(path)])
        (unit,) = found["units"]
        assert (unit["name"], unit["state"], unit["at"]) == ("pair", "running", f"{path}:2")
        intents = daemon.out("jq -r .intent $M/proc/processes").splitlines()
        assert intents == ["supervise pair: one, two", "wait 500 s", "wait 500 s"]
        assert daemon.stop() == 0


def test_a_daemon_whose_file_fails_runs_on_and_says_why(tmp_path):
    """Nothing of the file is left running; the log and `sys/init` have the line and the reason."""
    path = lay(tmp_path, BAD)
    with running(tmp_path) as daemon:
        until(lambda: shown(daemon)["state"] == "failed", "init has failed")
        reason = shown(daemon)["reason"]
        assert reason.startswith(
            f"{path}:8: the supervisor 'last' ended at once with code 1: start_failed: 'x'"
        )
        assert [unit["state"] for unit in shown(daemon)["units"]] == ["rolled back", "failed"]
        assert daemon.out("cat $M/proc/processes") == ""
        assert f"init: {reason}" in daemon.log()
