#!/usr/bin/env bash
# Makes .venv-peers: the in-process replay buffers that the benchmarks compare with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh
[ -e .venv-peers/ready ] && exit 0
say "making .venv-peers with cpprb, rlox, stable-baselines3 and flashbax (a few minutes)"
run_quietly "making .venv-peers" python3 -m venv --clear .venv-peers
run_quietly "installing the peers" .venv-peers/bin/python -m pip install --disable-pip-version-check -q \
  torch==2.13.0 cpprb==11.0.0 rlox==1.2.0 stable-baselines3==2.9.2 flashbax==0.1.3
touch .venv-peers/ready
