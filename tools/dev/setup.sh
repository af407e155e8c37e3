# Sourced by ./dev and its scripts: installs what is missing, builds, makes .venv. Every step is skipped when nothing changed.

packages_build="gcc libc6-dev cmake ninja-build pkg-config python3-dev python3-venv libnghttp2-dev libuv1-dev libssl-dev libsnappy-dev libyaml-dev zlib1g-dev"
packages_test="libcmocka-dev nginx-light git"
packages_lint="clang-format"
packages_fuzz="clang libclang-rt-dev"
packages_arm64="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"

say() { printf '\033[2mdev: %s\033[0m\n' "$*" >&2; }

missing_packages() {
  local wanted="" group
  for group in "$@"; do local name="packages_$group"; wanted+=" ${!name}"; done
  [ -n "${wanted// /}" ] || return 0
  # shellcheck disable=SC2086
  { dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null || true; } |
    awk -v wanted="$wanted" '$2 == "installed" {have[$1]} END {n = split(wanted, w); for (i = 1; i <= n; i++) if (!(w[i] in have)) printf "%s ", w[i]}'
}

# need_packages GROUP...: installs the Debian packages of these groups that are missing.
need_packages() {
  command -v dpkg-query >/dev/null || { say "this is no Debian or Ubuntu: install by hand what ./dev doctor lists"; return 0; }
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    printf 'dev: these Debian packages are missing: %s\nRun this, then try again:\n\n    sudo apt-get update && sudo apt-get install --no-install-recommends %s\n' "$missing" "$missing" >&2
    exit 1
  fi
  say "installing Debian packages: $missing"
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/tmp/reverie-apt.log 2>&1 ||
    { tail -n 20 /tmp/reverie-apt.log >&2; echo "dev: apt-get failed (above); nothing else was changed" >&2; exit 1; }
}

# run_quietly NAME COMMAND...: shows the output only when the command fails.
run_quietly() {
  local name=$1 log; shift
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "dev: $name failed (above; all of it in $log)" >&2
    exit 1
  fi
  rm -f "$log"
}

build_preset() {
  [ "build/$1/build.ninja" -nt CMakePresets.json ] || { say "configuring build/$1"; run_quietly "configuring build/$1" cmake --preset "$1"; }
  run_quietly "building build/$1" cmake --build "build/$1"
}

build_release() { build_preset release; }

hash_of() { git ls-files -z --cached --others --exclude-standard -- "$@" | xargs -0 -r sha256sum 2>/dev/null | sha256sum | cut -d' ' -f1; }

# need_venv EXTRA: .venv with Reverie as it stands in this tree, and the packages of that extra in pyproject.toml.
need_venv() {
  local extra=$1 stamp
  if [ ! -x .venv/bin/python ]; then
    say "making .venv"
    run_quietly "making .venv" python3 -m venv .venv
  fi
  mkdir -p .venv/stamps
  if [ "$extra" != base ]; then
    stamp=$(hash_of pyproject.toml)
    if [ "$(cat ".venv/stamps/$extra" 2>/dev/null)" != "$stamp" ]; then
      say "installing the Python packages for \"$extra\""
      run_quietly "installing Python packages" .venv/bin/python -m pip install --disable-pip-version-check -q $(.venv/bin/python tools/dev/extras.py "$extra")
      echo "$stamp" >".venv/stamps/$extra"
    fi
  fi
  stamp=$(hash_of pyproject.toml CMakeLists.txt include src python tools/reverie-server)
  if [ "$(cat .venv/stamps/reverie 2>/dev/null)" != "$stamp" ]; then
    say "building and installing the Python package"
    run_quietly "pip install ." .venv/bin/python -m pip install --disable-pip-version-check -q .
    echo "$stamp" >.venv/stamps/reverie
  fi
}
