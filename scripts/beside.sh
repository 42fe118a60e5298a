#!/usr/bin/env bash
# beside.sh COMMAND COMMAND: runs two commands, each a line of shell, at once.
#
#   first  ──▶ its output as it comes       ┐
#   second ──▶ a file, printed when it ends ┴─▶ fails if one of them has failed
#
# The suites leave a third of two cores idle, as some tests want the device or the process alone.
set -uo pipefail
scratch=$(mktemp)
second=''
# Prints what the second has said, and stops it if it still runs.
finish() {
    [ -z "$second" ] || kill "$second" 2>/dev/null
    cat "$scratch"
    rm -f "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Commands in the background ignore Ctrl-C unless they are told not to.
(trap - INT QUIT && exec bash -c "$2") >"$scratch" 2>&1 &
second=$!
failed=()
bash -c "$1" || failed+=("$1")
wait "$second" || failed+=("$2")
second=''
[ ${#failed[@]} = 0 ] && exit 0
printf 'failed: %s\n' "${failed[@]}" >&2
exit 1
