#!/usr/bin/env bash
# A supervised pair of agents, run with nothing but bash and the programs echo, cat, ls, mkdir and rmdir.
# See processes.md beside this script, which goes through it part by part.
#
# usage: processes.sh MOUNTPOINT
set -euo pipefail
cd "${1:?usage: processes.sh MOUNTPOINT}"

say() {
    echo "== $*"
}

# Takes a document's text and a field's name; prints the field's value.
# This is not a parser of JSON: it knows that our documents are one line, and that the fields it is asked for
# are numbers, words, or texts without quotes.
field() {
    local rest=${1#*\"$2\":}
    if [[ $rest == \"* ]]; then
        rest=${rest#\"}
        echo "${rest%%\"*}"
    else
        echo "${rest%%[,\}\]]*}"
    fi
}

# Waits until a document holds a text: a read of a document never waits, so it is read again.
until_has() {
    until [[ $(cat "$1") == *"$2"* ]]; do :; done
}

# Waits until a document holds a text no longer.
until_has_not() {
    while [[ $(cat "$1") == *"$2"* ]]; do :; done
}

# The pid of a child, by its name on the board of the supervisor.
child() {
    local board
    board=$(cat "proc/$supervisor/supervisor")
    field "${board#*\"name\":\"$1\"}" pid
}

say 'A supervisor with two agents'
echo '{"provider": "script", "supervisor": {"name": "pair", "strategy": "one_for_one", "children": [
    {"name": "writer", "intent": "listen", "restart": "permanent"},
    {"name": "reader", "intent": "listen", "restart": "transient"}]}}' > proc/spawn
supervisor=$(cat proc/spawn)
until_has_not "proc/$supervisor/supervisor" '"state":"waiting"'
writer=$(child writer)
reader=$(child reader)
echo "intent of the supervisor: $(cat "proc/$supervisor/intent")"
echo "its children: $(ls -d "proc/$writer" "proc/$reader" > /dev/null && cat "proc/$supervisor/children" | {
    mapfile -t pids
    echo "${#pids[@]}"
})"

say 'One of them is killed, and started again'
echo kill > "proc/$writer/ctl"
until_has "proc/$supervisor/supervisor" '"restarts":1'
until_has_not "proc/$supervisor/supervisor" '"state":"waiting"'
old=$writer
writer=$(child writer)
echo "the old one: $(field "$(cat "proc/$old/wait")" reason)"
if [ "$writer" != "$old" ]; then
    echo "the new one: $(field "$(cat "proc/$writer/status")" intent)"
fi

say 'One is paused, and goes on'
echo pause > "proc/$reader/ctl"
echo "paused: $(field "$(cat "proc/$reader/status")" paused)"
echo resume > "proc/$reader/ctl"
echo "paused: $(field "$(cat "proc/$reader/status")" paused)"

say 'Messages'
echo 'first' > "proc/$reader/mailbox"
echo '{"task": "second"}' > "proc/$reader/mailbox"
exec 3< "proc/$reader/recv"
read -r one <&3
read -r two <&3
exec 3<&-
echo "from a person, $(field "$one" from): $(field "$one" data)"
echo "and then: $(field "$two" task)"

say 'A pipe between the two'
echo "{\"from\": $writer, \"to\": $reader}" > dev/pipe
pipe=$(cat dev/pipe)
echo "open files: $(ls "proc/$writer/fd") and $(ls "proc/$reader/fd")"
if [[ $(ls -l "proc/$writer/fd") == *"pipe:[$(field "$pipe" pipe)]"* ]]; then
    echo 'the writer has an end of it'
fi

say 'A pipe for people'
echo new > dev/pipe
number=$(cat dev/pipe)
echo 'through the pipe' > "dev/pipes/$number/write"
cat "dev/pipes/$number/read"

say 'What an agent is told, it answers'
echo 'say well done' > "proc/$reader/ctl"
end=$(cat "proc/$reader/wait")
echo "reader: code $(field "$end" code), $(cat "proc/$reader/result")"

say 'A group, and its end'
mkdir proc/groups/crew
for pid in "$supervisor" "$writer"; do
    echo 'join crew' > "proc/$pid/ctl"
done
mapfile -t members < proc/groups/crew/members
echo "members: ${#members[@]}"
echo 'signal KILL' > proc/groups/crew/ctl
for pid in "${members[@]}"; do
    echo "ended: $(field "$(cat "proc/$pid/wait")" reason)"
done
echo "members: $(cat proc/groups/crew/members)"
rmdir proc/groups/crew

say 'What is left'
echo "alive: $(cat proc/processes)"
rmdir "proc/$supervisor" "proc/$old" "proc/$writer" "proc/$reader"
if [ ! -e "proc/$supervisor" ]; then
    echo 'the folders are gone'
fi
