#!/usr/bin/env bash
# readme.sh: runs the commands and the Python code of README.md, in its order.
#
#   ```sh      make TARGET ─▶ its commands are only listed; make test runs what they are
#              cargo run, target/release/… ─▶ run with the debug programs, in a scratch folder
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

# blocks LANGUAGE: prints the code of the README's blocks in that language.
blocks() {
    awk -v fence="^\`\`\`$1\$" '$0 ~ fence { on = 1; next } /^```/ { on = 0 } on' README.md
}

run() {
    echo "README: $1"
    (cd "$2" && bash -euo pipefail -c "$1") >"$scratch/out" 2>&1 || {
        cat "$scratch/out" >&2
        echo "readme.sh: this command of README.md failed: $1" >&2
        exit 1
    }
}

count=0
while IFS= read -r line; do
    command=${line%%  #*}
    command=${command//--release /}
    case $command in
    '' | 'pip install ./python') continue ;; # scripts/python.sh tests it
    make\ *) run "make --dry-run ${command#make }" "$root" ;;
    cargo\ run\ *) run "${command/run/run --workspace --quiet}" "$root" ;;
    *) run "${command//target\/release/$target/debug}" "$scratch" ;;
    esac
    count=$((count + 1))
done < <(blocks sh)
[ "$count" -ge 4 ] || { echo "readme.sh: README.md has no commands" >&2; exit 1; }
if [ -x "$python" ]; then
    run "$python -c '$(blocks python | sed "s/'/'\\\\''/g")'" "$scratch"
fi
echo "readme.sh: $count commands ran"
