#!/usr/bin/env bash
# python.sh [PYTEST ARGUMENT]...: builds the Python wheel, installs it into an environment of its
# own under target/, and runs its tests there. The exit status is 77 if Python or a package is
# missing and cannot be installed. INSTALL=0 installs nothing but the wheel.
#
#   maturin ─▶ wheel ─▶ target/python/venv ─▶ pytest, mypy's stubtest
#
# EXAMPLE=1 runs python/examples/orders.py instead.
# PROFILE=--release builds the wheel with optimisation, as `pip install ./python` does.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
venv=$target/python/venv
python=$venv/bin/python
# What the tests compare with, and what takes results.
needs=(maturin==1.* pytest datafusion==55.0.0 pyarrow polars pandas duckdb numpy mypy)

is_there() { [ -x "$python" ] && "$python" - "${needs[@]}" <<'P'
import sys
from importlib.metadata import PackageNotFoundError, version

missing = []
for need in sys.argv[1:]:
    name, _, wanted = need.partition("==")
    try:
        found = version(name)
        if not (found + ".").startswith(wanted.rstrip("*")):
            missing.append(f"{need} (there is {found})")
    except PackageNotFoundError:
        missing.append(need)
if missing:
    sys.exit("missing: " + ", ".join(missing))
P
}

if ! why=$(is_there 2>&1); then
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "python.sh: ${why:-no environment in $venv}; INSTALL=1 makes one, and installs" \
            "with pip: ${needs[*]}" >&2
        exit 77
    fi
    echo "python.sh: makes $venv, and installs with pip: ${needs[*]}" >&2
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
        echo "python.sh: needs Python 3.10 or newer" >&2
        exit 77
    }
    [ -x "$python" ] || python3 -m venv "$venv" || {
        echo "python.sh: needs Python's module venv (Debian: python3-venv)" >&2
        exit 77
    }
    "$python" -m pip install --quiet --disable-pip-version-check "${needs[@]}" || {
        echo "python.sh: pip could not install these packages" >&2
        exit 77
    }
fi

rm -rf "$target/python/wheels"
begun=$SECONDS
profile=(--profile dev --compression-method stored)
[ "${PROFILE:-}" != --release ] || profile=(--release --strip)
"$venv/bin/maturin" build "${profile[@]}" --auditwheel skip \
    --manifest-path python/Cargo.toml --out "$target/python/wheels"
echo "python.sh: built the wheel in $((SECONDS - begun)) s" >&2
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
    "$target"/python/wheels/*.whl

# Not from the source folder: the installed package is what is tested.
cd "$target/python"
if [ "${EXAMPLE:-}" = 1 ]; then
    exec "$python" "$root/python/examples/orders.py"
fi
"$venv/bin/stubtest" --mypy-config-file "$root/python/pyproject.toml" horton_join
"$python" -m pytest -c "$root/python/pyproject.toml" --rootdir "$root/python" -p no:cacheprovider \
    "$root/python/tests" "$@"
