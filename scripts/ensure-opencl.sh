#!/usr/bin/env bash
# ensure-opencl.sh [--release]: makes sure that OpenCL has a device.
#
# Nothing is installed where there is one already, of any vendor. Otherwise Debian and Ubuntu get
# PoCL (OpenCL on the CPU) and the ICD loader from their own packages; other systems are told what
# to install. The script asks the loader that the programs use. Files under /etc/OpenCL/vendors tell
# neither whether a driver loads nor whether it finds its hardware.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

platforms=(cargo run --quiet "$@" --package horton-opencl-loader --example platforms)
cargo build "$@" --package horton-opencl-loader --example platforms

if answer=$("${platforms[@]}" 2>&1); then
    exit 0
fi
echo "No OpenCL device: $answer" >&2

if ! command -v apt-get >/dev/null; then
    cat >&2 <<'END'
Install your GPU's OpenCL driver, or PoCL for the CPU, and the ICD loader:
  Fedora      sudo dnf install pocl ocl-icd
  Arch        sudo pacman -S pocl ocl-icd
  openSUSE    sudo zypper install pocl libOpenCL1
  macOS       OpenCL is part of the system: no device means that this Mac offers none
END
    exit 1
fi
apt_install pocl-opencl-icd ocl-icd-libopencl1
"${platforms[@]}" >&2 || {
    echo "There is still no OpenCL device" >&2
    exit 1
}
