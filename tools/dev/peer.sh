#!/usr/bin/env bash
# Makes .venv-reverb: the published dm-reverb wheel with its TensorFlow, the peer for interoperability tests and benchmarks. Their
# newest Python is 3.11; where this machine's python3 is newer, RV_PEER_BASE names one that fits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh
[ -e .venv-reverb/ready ] && exit 0
base=${RV_PEER_BASE:-python3}
say "making .venv-reverb with dm-reverb 0.14.0 and TensorFlow 2.15 (a few minutes)"
run_quietly "making .venv-reverb" "$base" -m venv --clear .venv-reverb
run_quietly "installing dm-reverb" .venv-reverb/bin/python -m pip install --disable-pip-version-check -q dm-reverb==0.14.0 'tensorflow-cpu==2.15.*' pytest
.venv-reverb/bin/python -c 'import reverb' >/dev/null 2>&1 || { echo "dev: dm-reverb was installed but does not import" >&2; exit 1; }
touch .venv-reverb/ready
