#!/usr/bin/env bash
# Fuzzes with libFuzzer (clang), under the address and undefined-behaviour sanitizers, two targets at a time on two cores:
#   ./dev fuzz [--minutes N] [--keep] [TARGET...]
# each target, or those named, for N minutes (10), from its corpus in fuzz/corpus. Ends with a table (executions, edges of the library's that
# were reached, inputs found); fails when one crashed, hung or leaked: its input is in build/fuzz/crashes/TARGET. With --keep inputs that
# reach lines that the corpus does not are added to it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh

minutes=10
keep=false
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --keep) keep=true ;;
    --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "no option \"$1\"; see ./dev fuzz --help" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
all=$(cd fuzz && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//')
[ ${#targets[@]} -gt 0 ] || mapfile -t targets <<<"$all"
for target in "${targets[@]}"; do
  grep -qx -- "$target" <<<"$all" || { echo "no target \"$target\"; there are: ${all//$'\n'/ }" >&2; exit 2; }
done

[ build/fuzz/build.ninja -nt CMakePresets.json ] || run_quietly "configuring build/fuzz" cmake --preset fuzz
run_quietly "building build/fuzz" cmake --build build/fuzz --target "${targets[@]/#/fuzz_}"
log=build/fuzz/log
mkdir -p "$log"

run_one() { # run_one TARGET
  local target=$1 found="build/fuzz/found/$1" crashes="build/fuzz/crashes/$1"
  mkdir -p "$found" "$crashes"
  "build/fuzz/fuzz/fuzz_$target" -max_total_time=$((minutes * 60)) -timeout=25 -rss_limit_mb=3072 -max_len=65536 -print_final_stats=1 -artifact_prefix="$crashes/" \
    "$found" "fuzz/corpus/$target" >"$log/$target" 2>&1 || echo "stopped" >>"$log/$target"
  echo "dev: $target: $(grep -o 'stat::number_of_executed_units: .*' "$log/$target" || echo "see $log/$target")" >&2
}
export -f run_one
export minutes log
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I TARGET bash -c 'run_one TARGET'

status=0
printf '%-18s %12s %8s %14s %8s  %s\n' target executions seconds "edges reached" inputs result
for target in "${targets[@]}"; do
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log/$target")
  seconds=$(sed -n 's/^Done .* runs in \([0-9]*\) second.*/\1/p' "$log/$target")
  edges=$(grep -oE 'cov: [0-9]+' "$log/$target" | tail -n 1 | cut -d' ' -f2)
  of=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) inline 8-bit counters).*/\1/p' "$log/$target" | head -n 1)
  inputs=$(find "build/fuzz/found/$target" -type f | wc -l)
  result=fine
  if tail -n 1 "$log/$target" | grep -qx stopped; then
    result="FAILED: $log/$target"
    status=1
  elif $keep; then
    "build/fuzz/fuzz/fuzz_$target" -merge=1 -use_counters=0 "fuzz/corpus/$target" "build/fuzz/found/$target" >"$log/$target.merge" 2>&1 || { result="merge failed: $log/$target.merge"; status=1; }
  fi
  printf '%-18s %12s %8s %6s/%-7s %8s  %s\n' "$target" "${runs:-?}" "${seconds:-?}" "${edges:-?}" "${of:-?}" "$inputs" "$result"
done
exit $status
