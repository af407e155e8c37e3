#!/usr/bin/env bash
# Says what this machine has and lacks. Changes nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh
bad=0
report() { # report WHAT STATE REMEDY
  if [ "$2" = ok ]; then printf '  ok       %s\n' "$1"; else printf '  MISSING  %s: %s\n' "$1" "$3"; bad=1; fi
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && state=ok || state=no
report "Python 3.11 or newer ($(python3 --version 2>&1))" $state "install a newer python3"
for group in build test lint; do
  missing=$(missing_packages "$group")
  [ -z "$missing" ] && state=ok || state=no
  report "Debian packages to $group" $state "apt-get install --no-install-recommends $missing"
done
[ -x .venv/bin/python ] && state=ok || state=no
report ".venv" $state "./dev build makes it"
[ -x build/release/tools/reverie-server ] && state=ok || state=no
report "build/release" $state "./dev build makes it"
free_mib=$(df -Pm . | awk 'NR == 2 {print $4}')
[ "$free_mib" -ge 4000 ] && state=ok || state=no
report "disk: $free_mib MiB free here" $state "the tests want 4000 MiB"
files=$(ulimit -n)
[ "$files" -ge 1024 ] && state=ok || state=no
report "open files: $files" $state "ulimit -n 4096"
exit $bad
