# shellcheck shell=bash
# Sourced by the other scripts.

# as_root COMMAND...: runs it as root, through sudo where needed.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "this needs root or sudo: $*" >&2
        return 1
    fi
}

# apt_install PACKAGE...: installs Debian or Ubuntu packages, the first of each A|B that there is.
# It says so first. INSTALL=0 in the environment installs nothing, and says what is missing.
apt_install() {
    local packages=() alternatives package
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "INSTALL=0 installs nothing. Missing: ${*//|/ or }" >&2
        return 1
    fi
    echo "About to install with apt-get: ${*//|/ or } (INSTALL=0 to refuse)" >&2
    # The index of a fresh container is empty, that of an old machine names versions long gone.
    as_root apt-get update --quiet=2 || return
    for alternatives in "$@"; do
        for package in ${alternatives//|/ }; do
            apt-cache show "$package" >/dev/null 2>&1 && break
        done
        packages+=("$package")
    done
    echo "Installing ${packages[*]}" >&2
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}"
}
