#!/usr/bin/env bash
# What CI checks in the sources: layers, compiler warnings as errors, formatting, ruff, mypy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh

echo "layers: no layer includes upward"
.venv/bin/python tools/dev/layers.py
echo "warnings: the release build with -Werror"
run_quietly "configuring" cmake -B build/werror -G Ninja -DCMAKE_BUILD_TYPE=Release -DRV_TESTS=ON -DRV_BENCH=ON -DRV_PYTHON=ON \
  -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
run_quietly "building with -Werror" cmake --build build/werror
echo "clang-format"
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
echo "ruff, mypy"
.venv/bin/ruff check python tests bench examples tools
.venv/bin/ruff format --check python tests bench examples tools
.venv/bin/mypy --config-file pyproject.toml python/reverie
.venv/bin/mypy --config-file pyproject.toml -p tests.torture
