#!/usr/bin/env bash
# What would be done on a system that is not Linux, as far as Linux can show it:
#   ./dev plain [REGEX]
# builds the C library, the server and their tests without what only Linux has (futexes, memory that processes share, guests of a loop;
# src/base/linux.h) and runs all of them, or those whose names match. Then compiles library, server and Python extension for macOS, by the
# headers that come with Zig, and runs nothing of that. Takes five minutes, and 450 MB for Zig in build/plain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh

case "${1:-}" in --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

# Of what only Linux has: memory that processes share, what is moved through it, and guests. journal_file_test counts
# writes past the cache, which is not used where the kind of a file system is not known.
linux_only="^(arena_map_test|arena_test|spares_arena_test|chunk_test|descriptors_refused_test|journal_file_test|echo_test|flow_test|gapped_test|landing_calls_test"
linux_only+="|landing_round_test|landing_test|place_test|ring_landing_test|ring_lending_test|ring_test|ring_transport_test|shortcut_test|guest_test"
linux_only+="|insert_stream_guest_test|insert_stream_places_test|insert_stream_visit_test)$"

build_preset plain
ctest --test-dir build/plain --timeout 600 --output-on-failure -j "$(($(nproc) + 1))" -LE fuzz -R "${1:-.}" -E "$linux_only"

zig=build/plain/zig
if ! "$zig/bin/python" -c 'import ziglang' 2>/dev/null; then
  say "fetching Zig, for its headers of macOS"
  run_quietly "making $zig" python3 -m venv "$zig"
  run_quietly "fetching Zig" "$zig/bin/python" -m pip install -q ziglang==0.17.1
fi

# Headers of the libraries that ours needs, without this system's own beside them.
headers=build/plain/headers
mkdir -p "$headers/openssl"
ln -sfn /usr/include/{uv.h,uv,nghttp2,snappy-c.h,yaml.h,zlib.h,zconf.h} "$headers"
ln -sf /usr/include/openssl/* "/usr/include/$(gcc -print-multiarch)/openssl/"* "$headers/openssl"
echo '#include <machine/endian.h>' >"$headers/endian.h" # NumPy's headers are configured for this system, which has one
python_headers=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
numpy_headers=$(.venv/bin/python -c 'import numpy; print(numpy.get_include())')

for target in aarch64-macos x86_64-macos; do
  say "compiling for $target"
  processor=apple_m1
  [ $target = aarch64-macos ] || processor=x86_64_v2 # Zig takes instructions away that a function says it uses
  mkdir -p "build/plain/$target"
  find src tools/reverie-server python/src -name '*.c' ! -name '*_test.c' | xargs -P "$(nproc)" -I{} sh -c '
    "$1/bin/python" -m ziglang cc -target "$2" -mcpu="$6" -std=c17 -D_GNU_SOURCE -O1 -Wall -Wextra -Wpedantic -Werror -Isrc -Iinclude \
      -isystem "$3" -isystem "$4" -isystem "$5" -c "$7" -o "build/plain/$2/$(echo "$7" | tr / _).o"' \
    compile "$zig" "$target" "$headers" "$python_headers" "$numpy_headers" "$processor" {}
done
say "compiled for macOS; nothing of it was run"
