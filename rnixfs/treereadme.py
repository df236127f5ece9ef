"""The text of `README.md` at the top of the tree."""

README = """\
# rnix: processes, models and tools as files

Everything here is driven by reading and writing files. Nothing is spent by reading.

    cat proc/processes                              what runs, one JSON line each
    echo 'count the files here' > proc/spawn        start a process with that intent ...
    cat proc/spawn                                  ... and read its pid
    cat proc/1/status                               how it fares
    tail -f proc/1/log                              what it thinks and does
    cat proc/1/trace                                its system calls, live, as strace shows them
    cat proc/1/wait                                 waits for its end
    echo pause > proc/1/ctl; cat proc/1/ctl         commands, and the list of them
    rmdir proc/1                                    kill it

A device takes a request and gives an answer. Read it without asking, and it says what it does.

    cat dev/shell                                   what the shell takes
    echo 'uname -a' > dev/shell; cat dev/shell      run a command, read its output
    echo '{"intent":"hello"}' > dev/llm/script; cat dev/llm/script

Two opens share an answer if they come from one login session. For a conversation of its own, open a device
for reading and writing:

    exec 3<>dev/shell; echo 'date' >&3; cat <&3; exec 3>&-

| folder | what it holds |
|---|---|
| `proc/` | processes: `spawn processes events history/ groups/` and a folder for each pid |
| `dev/` | `llm/<provider>`, `shell`, `fs/<host path>`, `edit`, `glob`, `grep`, `pipe`, `pipes/<n>` |
| `mnt/mcp/` | `ctl`, and a folder for each server that is mounted |
| `lib/` | the agents and skills that can be used |
| `sys/` | `version uptime stats limits config providers ctl` |

Inside `proc/<pid>/`: `status intent context messages.json result wait ctl trace trace.jsonl log steps.jsonl
steps/ mailbox recv fd/ children caps env signals threads/ root/`. `root` is the tree as that process sees it:
give that folder to a program, and it has just the rights of the process.

Errors: a refused write fails with an errno; reading the same file then gives the reason as
`{"error": {"code", "message", "syscall", "device"}}`.

`dev/llm/script` is no AI: it plays written scenarios, so that everything can be tried offline.
"""
