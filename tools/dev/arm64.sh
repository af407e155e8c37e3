#!/usr/bin/env bash
# Builds the C library, the server and their tests for 64-bit ARM, and runs them under an emulator (qemu-user):
#   ./dev arm64 [REGEX]
# all of them, or those tests whose names match. The libraries come from Debian's packages for ARM, into build/arm64/root; nothing of
# this machine's own changes but for the compiler and the emulator. Takes about ten minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh

case "${1:-}" in --help | -h) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

# What the emulator does not do as a kernel does, and no processor has to do with:
# memory that is taken back or wiped, address spaces that are limited, counts of mappings and descriptors, maps of a terabyte, programs that start themselves
not_emulated="^(arena_test|pages_test|ring_test|ring_lending_test|ring_transport_test|spill_test|journal_kill_test)$"

here=build/arm64
root=$here/root
wanted="libc6-dev libcmocka-dev libnghttp2-dev libsnappy-dev libssl-dev libuv1-dev libyaml-dev zlib1g-dev"

# apt-get with lists, packages and a status of its own, in which nothing is installed.
arm_apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State="$PWD/$here/apt" \
    -o Dir::State::status="$PWD/$here/apt/status" -o Dir::Cache="$PWD/$here/apt/cache" "$@"
}

if [ "$(cat "$here/stamp" 2>/dev/null)" != "$wanted" ]; then
  say "fetching Debian's packages for ARM"
  mkdir -p "$here/apt/lists/partial" "$here/apt/cache/archives/partial" "$root"
  : >"$here/apt/status"
  run_quietly "fetching the lists of packages" arm_apt update
  # shellcheck disable=SC2086
  run_quietly "fetching packages" arm_apt install --download-only --no-install-recommends -y $wanted
  for package in "$here"/apt/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
  echo "$wanted" >"$here/stamp"
fi

export PKG_CONFIG_SYSROOT_DIR="$PWD/$root" PKG_CONFIG_LIBDIR="$PWD/$root/usr/lib/aarch64-linux-gnu/pkgconfig"
run_quietly "configuring $here" cmake --preset arm64
run_quietly "building $here" cmake --build $here
exec ctest --test-dir $here --timeout 600 --output-on-failure -j "$(($(nproc) + 1))" -LE fuzz -R "${1:-.}" -E "$not_emulated"
