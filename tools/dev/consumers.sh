#!/usr/bin/env bash
# Makes .venv-consumers: Acme and TF-Agents as PyPI has them, to run with Reverie. Without dm-reverb: that lies beside, in a folder which
# only the comparison puts on its path. Both want a Python no newer than 3.11 (see peer.sh). Acme without what it pins: dm-launchpad has
# no wheel for 3.11 (tests/consumers/stand_ins), and its dm-reverb and TensorFlow are of 2022.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/setup.sh
[ -e .venv-consumers/ready ] && exit 0
base=${RV_PEER_BASE:-python3}
say "making .venv-consumers with Acme, TF-Agents and TensorFlow 2.15 (a few minutes)"
run_quietly "making .venv-consumers" "$base" -m venv --clear .venv-consumers
install() { run_quietly "installing $1" .venv-consumers/bin/python -m pip install --disable-pip-version-check -q "${@:2}"; }
install TF-Agents 'tensorflow-cpu==2.15.*' tf-agents==0.19.0 'tensorflow-probability==0.23.*' mock portpicker==1.6.0 pytest
install "what Acme needs" dm-sonnet==2.0.2 trfl==1.2.0 dm-env==1.6 dm-tree jax==0.4.30 jaxlib==0.4.30
install Acme --no-deps dm-acme==0.4.0
install dm-reverb --no-deps --target .venv-consumers/dm-reverb dm-reverb==0.14.0
touch .venv-consumers/ready
