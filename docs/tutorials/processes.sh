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

# Waits until a document holds a text no longer: a read of a document never waits, so it is read again.
until_has_not() {
    while [[ $(cat "$1") == *"$2"* ]]; do :; done
}

# The pid of a child, by its name on the board of the supervisor.
child() {
    local board
    board=$(cat "proc/$supervisor/supervisor")
    field "${board#*\"name\":\"$1\"}" pid
}

# What an agent is asked that is to run a command of bash (without double quotes) for up to ten minutes.
running() {
    echo "call: shell {\\\"command\\\": \\\"$1\\\", \\\"timeout_ms\\\": 600000}"
}

say 'A pipe'
echo new > dev/pipe
pipe=$(cat dev/pipe)
exec 4> "dev/pipes/$pipe/write"
ls "dev/pipes/$pipe"

say 'A supervised pair of agents'
writes="while read -r line; do echo \$line; done < '$PWD/proc/self/recv' > '$PWD/dev/pipes/$pipe/write'"
reads="read -r line < '$PWD/dev/pipes/$pipe/read'; echo \$line"
echo "{\"provider\": \"script\", \"supervisor\": {\"name\": \"pair\", \"strategy\": \"one_for_one\", \"children\": [
    {\"name\": \"writer\", \"restart\": \"permanent\", \"intent\": \"$(running "$writes")\"},
    {\"name\": \"reader\", \"restart\": \"transient\", \"intent\": \"$(running "$reads")\"}]}}" > proc/spawn
supervisor=$(cat proc/spawn)
until_has_not "proc/$supervisor/supervisor" '"state":"waiting"'
writer=$(child writer)
reader=$(child reader)
cat "proc/$supervisor/intent"
echo
mapfile -t children < "proc/$supervisor/children"
echo "children: ${#children[@]}"

say 'One of them is killed, and started again'
echo kill > "proc/$writer/ctl"
until_has_not "proc/$supervisor/supervisor" "\"name\":\"writer\",\"pid\":$writer,"
old=$writer
writer=$(child writer)
echo "the old one: $(field "$(cat "proc/$old/wait")" reason)"
echo "the new one: agent $(field "$(cat "proc/$writer/status")" agent)"

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
echo "from $(field "$one" from): $(field "$one" data)"
echo "from $(field "$two" from): $(field "$two" task)"

say 'A message to the one is a result of the other'
echo 'through the pipe' > "proc/$writer/mailbox"
end=$(cat "proc/$reader/wait")
echo "the reader: code $(field "$end" code)"
if [[ $(cat "proc/$reader/result") == *'through the pipe'* ]]; then
    echo 'it read: through the pipe'
fi

say 'A pipe from process to process'
echo "{\"from\": $supervisor, \"to\": $writer}" > dev/pipe
answer=$(cat dev/pipe)
fd=$(field "${answer#*\"to\":}" fd)
if [[ $(ls -l "proc/$writer/fd/$fd") == *"pipe:[$(field "$answer" pipe)]" ]]; then
    echo 'the writer has an end of it'
fi

say 'A group, and its end'
mkdir proc/groups/crew
for pid in "$supervisor" "$writer"; do
    echo 'join crew' > "proc/$pid/ctl"
done
mapfile -t members < proc/groups/crew/members
echo "members: ${#members[@]}"
echo 'signal KILL' > proc/groups/crew/ctl
for pid in "${members[@]}"; do
    end=$(cat "proc/$pid/wait")
    echo "code $(field "$end" code): $(field "$end" reason)"
done
mapfile -t members < proc/groups/crew/members
echo "members: ${#members[@]}"
rmdir proc/groups/crew

say 'What is left'
exec 4>&-
mapfile -t alive < proc/processes
echo "alive: ${#alive[@]}"
rmdir "proc/$supervisor" "proc/$old" "proc/$writer" "proc/$reader"
if [ ! -e "proc/$supervisor" ]; then
    echo 'the folders are gone'
fi
