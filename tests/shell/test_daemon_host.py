"""Running programs from a daemon in bad shape or with orphans: each test is a Python process of its own."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

START = r"""
import os, resource, trio
from rnixfs.children import Children
from rnixfs.errors import SyscallError

out = bytearray()
err = bytearray()
children = Children()

async def bash(command, **options):
    env = {"PATH": os.environ["PATH"], "OF_TEST": str(os.getpid())}
    defaults = dict(cwd="/", env=env, stdout=out.extend, stderr=err.extend, timeout=60)
    return await children.run(["bash", "-c", command], **(defaults | options))

def zombies():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.append(int(name))
    return found

def marked():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = open(f"/proc/{name}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if f"OF_TEST={os.getpid()}".encode() in variables:
            found.append(int(name))
    return found
"""


def daemon(body: str, **options) -> str:
    """Run a piece of program as a daemon would, and return what it prints."""
    script = START + textwrap.dedent(body)
    root = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        **options,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("closed", ["0", "0, 1", "0, 1, 2"])
def test_closed_standard_descriptors_do_not_matter(closed, tmp_path):
    """A daemon without stdin, stdout or stderr hands its programs the right pipes all the same."""
    answer = tmp_path / "answer"
    daemon(f"""
        for fd in [{closed}]:
            os.close(fd)
        async def main():
            await bash("cat; echo out; echo err >&2", stdin=b"in ")
            await bash("cat; echo again")
        trio.run(main)
        with open({str(answer)!r}, "w") as file:
            file.write(repr((bytes(out), bytes(err))))
        os._exit(0)
    """)
    assert answer.read_text() == repr((b"in out\nagain\n", b"err\n"))


def test_orphans_are_adopted_and_reaped():
    """A daemon that adopts has no zombie after a run, whatever the run left and however it died."""
    printed = daemon("""
        assert children.adopt_orphans()
        async def main():
            await bash("(sleep 1000 &) ; (sleep 0 &) ; (setsid sleep 1000 &) ; sleep 0.05; exit 3")
            await bash("for i in {1..20}; do (sleep 1000 &) ; done")
            await bash("(setsid bash -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &) ; echo hi", timeout=30)
            await bash("(sleep 1000 &) ; sleep 1000", timeout=0.2)
        trio.run(main)
        print(zombies(), bytes(out))
    """)
    assert printed == "[] b'hi\\n'\n"


def test_children_of_others_keep_their_exit_status():
    """Reaping adopted orphans never takes the exit status from somebody who started his own program."""
    printed = daemon("""
        import subprocess
        from rnixfs import children as module
        module._STRAY_SECONDS = 1e9
        children.adopt_orphans()
        async def main():
            mine = [
                subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=new) for new in (False, True) * 5
            ]
            while len(zombies()) < 10:
                await trio.sleep(0.01)
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(bash, "(sleep 1000 &) ; exit 3")
            print([process.wait() for process in mine] == [7] * 10, zombies())
        trio.run(main)
    """)
    assert printed == "True []\n"


def test_a_stray_is_reaped_when_nobody_has_cared_for_long(tmp_path):
    """An orphan that died unseen in a session of its own does not stay a zombie for ever."""
    printed = daemon(
        """
        from rnixfs import children as module
        children.adopt_orphans()
        stray = "(env -i setsid sh -c 'echo > ready; exec sleep 0' >/dev/null 2>&1 &)"
        async def main():
            await bash(stray + "; until test -e ready; do sleep 0.01; done", cwd=os.getcwd())
            while not zombies():
                await trio.sleep(0.01)
            await bash("true")
            print(len(zombies()))
            module._STRAY_SECONDS = 0
            await bash("true")
            print(len(zombies()))
        trio.run(main)
        """,
        cwd=tmp_path,
    )
    assert printed == "1\n0\n"


def test_a_daemon_without_descriptors_says_so_and_recovers():
    """Running out of descriptors is a clear refusal, and leaves nothing; later programs run again."""
    printed = daemon("""
        async def attempt(free):
            # Everything is loaded before descriptors run short.
            hold = []
            try:
                while True:
                    hold.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            for fd in hold[:free]:
                os.close(fd)
            try:
                return (await bash("echo hi; sleep 1000 >/dev/null 2>&1 &", stdin=b"x", grace=0.2)).returncode
            except SyscallError as error:
                return str(error.code)
            finally:
                for fd in hold[free:]:
                    os.close(fd)
        async def main():
            await bash("true")
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            codes = [await attempt(free) for free in range(16)]
            print(codes[0], codes[-1], set(codes) <= {"RESOURCE_EXHAUSTED", 0})
            while marked():
                await trio.sleep(0.01)
        trio.run(main)
    """)
    assert printed == "RESOURCE_EXHAUSTED 0 True\n"
