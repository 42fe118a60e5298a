#!/usr/bin/env bash
# readme.sh: runs the commands and the Python code of README.md, in its order.
#
#   ```sh      make TARGET     ─▶ the target is looked for; make test runs what it is
#              target/release/ ─▶ the debug programs, in a scratch folder
#   ```python  the installed wheel, if scripts/python.sh has made one
#
# Rust code is run by doctests (src/lib.rs). Everything is built before: see make test.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(realpath "${CARGO_TARGET_DIR:-target}")
python=$target/python/venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/target"
ln -s "$target/debug" "$scratch/target/release"

fail() {
    echo "readme.sh: $1" >&2
    exit 1
}

# blocks LANGUAGE: prints the code of the README's blocks in that language.
blocks() {
    awk -v fence="^\`\`\`$1\$" '$0 ~ fence { on = 1; next } /^```/ { on = 0 } on' README.md
}

# run COMMAND...: runs it in the scratch folder.
run() {
    (cd "$scratch" && "$@") >"$scratch/out" 2>&1 </dev/null || {
        cat "$scratch/out" >&2
        fail "this of README.md failed: $*"
    }
}

count=0
while IFS= read -r line; do
    command=${line%% #*}
    echo "README: $command"
    case $command in
    '') continue ;;
    make\ *) grep -qE "^${command#make }:" "$root/Makefile" || fail "there is no '$command'" ;;
    target/release/*) run bash -c "$command" ;;
    *) fail "cannot run '$command': readme.sh knows make and target/release/" ;;
    esac
    count=$((count + 1))
done < <(blocks sh | sed 's/ *#.*//')
[ "$count" -ge 4 ] || fail "README.md has $count commands, expected 4 or more"

code=$(blocks python)
[ -n "$code" ] || fail "README.md has no Python code"
if [ -x "$python" ] && "$python" -c 'import horton_join' 2>/dev/null; then
    run "$python" -c "$code"
else
    echo "readme.sh: the Python code is left out, as the wheel is not installed (make python)"
fi
echo "readme.sh: $count commands of README.md ran"
