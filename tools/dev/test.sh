#!/usr/bin/env bash
# Runs the tests. Tiers, each on its own or all: lint c-asan c-tsan fuzz python torture interop tensorflow jax demo; with --all torch,
# acme and tf-agents, too (docs/testing.md).
# Ends with "N passed, N failed" over all tiers; fails when anything failed or nothing ran.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh

tiers=("$@")
usual=(lint c-asan c-tsan fuzz python torture interop tensorflow jax demo)
rest=(torch acme tf-agents)
[ ${#tiers[@]} -gt 0 ] || tiers=("${usual[@]}")
[ "${tiers[*]}" != --all ] || export RV_TEST_ALL=1 # the long form of what has a short one
[ "${tiers[*]}" != --all ] || tiers=("${usual[@]}" "${rest[@]}")
passed=0
failed=0
cores=$(nproc)
several=$((cores < 4 ? cores : 4)) # processes of pytest

count() { # count NAME PASSED FAILED
  printf '== %s: %d passed, %d failed\n' "$1" "$2" "$3"
  passed=$((passed + $2))
  failed=$((failed + $3))
}

run_ctest() { # run_ctest NAME PRESET [CTEST ARGS]
  local name=$1 preset=$2 log limit=300; shift 2
  [ -z "${RV_TEST_ALL:-}" ] || limit=3600 # seconds for a test
  (build_preset "$preset") || { count "$name" 0 1; return; }
  log=$(mktemp)
  # One more than there are cores: some only wait.
  ctest --test-dir "build/$preset" -j $((cores + 1)) --output-on-failure --timeout "$limit" --no-tests=error --output-junit "$log" "$@" 2>&1 | grep -vE '^ +Start +[0-9]+:'
  # The counts are read from the report: the sentence that ctest prints differs between its versions.
  count "$name" $(python3 - "$log" <<'EOF'
import sys
import xml.etree.ElementTree as xml

try:
    suite = xml.parse(sys.argv[1]).getroot()
    total, ran = int(suite.get("tests")), sum(case.get("status") == "run" for case in suite.iter("testcase"))
    print(ran, max(total - ran, 0 if total else 1))
except (OSError, xml.ParseError):
    print(0, 1)
EOF
  )
  rm -f "$log"
}

run_pytest() { # run_pytest NAME PATHS...: so many processes as $processes says, or one, share the files out (tests/conftest.py)
  local name=$1 folder i status ok=0 bad=0; shift
  local pids=() pytest=("${PYTEST_PYTHON:-.venv/bin/python}" -m pytest -q -p no:cacheprovider "$@")
  folder=$(mktemp -d)
  mkdir "$folder/shared"
  [ "${processes:-1}" -eq 1 ] || export RV_TEST_SHARED=$folder/shared
  for ((i = 1; i < ${processes:-1}; i++)); do
    env --default-signal=INT,QUIT "${pytest[@]}" >"$folder/$i.log" 2>&1 & # as in ./dev: "&" has them ignored
    pids+=($!)
  done
  "${pytest[@]}" 2>&1 | tee "$folder/0.log"
  status=${PIPESTATUS[0]}
  for ((i = 1; i <= ${#pids[@]}; i++)); do
    wait "${pids[i - 1]}" || status=$?
    cat "$folder/$i.log"
  done
  unset RV_TEST_SHARED
  for ((i = 0; i <= ${#pids[@]}; i++)); do
    ok=$((ok + $(grep -oE '[0-9]+ passed' "$folder/$i.log" | tail -n 1 | awk '{n = $1} END {print n + 0}')))
    bad=$((bad + $(grep -oE '[0-9]+ (failed|error)' "$folder/$i.log" | awk '{n += $1} END {print n + 0}')))
  done
  rm -rf "$folder"
  [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
  count "$name" "$ok" "$bad"
}

make_framework() { # make_framework NAME REQUIREMENTS...: a virtual environment of its own
  local name=$1; shift
  [ ! -e ".venv-$name/ready" ] || return 0
  say "making .venv-$name (a minute or more)"
  run_quietly "making .venv-$name" python3 -m venv --clear ".venv-$name"
  run_quietly "installing $name" ".venv-$name/bin/python" -m pip install --disable-pip-version-check -q "$@" ml_dtypes pytest
  touch ".venv-$name/ready"
}

run_framework() { # run_framework NAME PYTHON [FILE]: with Reverie as .venv has it
  local name=$1
  mkdir -p build/package
  ln -sfn "$(.venv/bin/python -c 'import pathlib, reverie; print(pathlib.Path(reverie.__file__).parent)')" build/package/reverie
  PYTHONPATH=build/package PYTEST_PYTHON=$2 run_pytest "$name" ${3:-tests/frameworks/test_$name*.py}
}

for tier in "${tiers[@]}"; do
  printf '\n== %s\n' "$tier"
  begin=$SECONDS
  case "$tier" in
    c-asan) RV_TEST_UPDATES="${RV_TEST_UPDATES:-100000000}" run_ctest c-asan asan -LE fuzz ;;
    c-tsan) TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}" run_ctest c-tsan tsan -LE fuzz ;;
    fuzz) run_ctest fuzz asan -L fuzz ;;
    python)
      (build_release && need_venv test) && processes=$several run_pytest python tests/python tests/consumers/test_recorded.py || count python 0 1 ;;
    torture) (build_release && need_venv test) && run_pytest torture tests/torture || count torture 0 1 ;;
    interop)
      (build_release && need_venv test && tools/dev/peer.sh) && RV_PEER_PYTHON="$PWD/.venv-reverb/bin/python" processes=$several run_pytest interop tests/interop || count interop 0 1 ;;
    jax) (build_release && need_venv base && make_framework jax jax) && run_framework jax .venv-jax/bin/python || count jax 0 1 ;;
    torch) (build_release && need_venv base && make_framework torch torch==2.13.0) && run_framework torch .venv-torch/bin/python || count torch 0 1 ;;
    tensorflow) (build_release && need_venv base && tools/dev/peer.sh) && run_framework tensorflow .venv-reverb/bin/python || count tensorflow 0 1 ;;
    acme) (build_release && need_venv base && tools/dev/consumers.sh) && run_framework acme .venv-consumers/bin/python tests/consumers/test_acme.py || count acme 0 1 ;;
    tf-agents) (build_release && need_venv base && tools/dev/consumers.sh) && run_framework tf-agents .venv-consumers/bin/python tests/consumers/test_tf_agents.py || count tf-agents 0 1 ;;
    demo)
      (build_release && need_venv demo && need_venv test) && run_pytest demo tests/demo || count demo 0 1 ;;
    lint) (need_packages build lint && need_venv test && tools/dev/lint.sh) && count lint 1 0 || count lint 0 1 ;;
    *) echo "no tier \"$tier\"; there are: ${usual[*]} ${rest[*]}" >&2; exit 2 ;;
  esac
  printf '== %s took %d s\n' "$tier" $((SECONDS - begin))
done

printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
