"""Where the peers live: virtual environments of their own, made by tools/dev/peer.sh and tools/dev/peers.sh."""

from __future__ import annotations

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
REVERB_PYTHON = os.environ.get("RV_PEER_PYTHON", str(ROOT / ".venv-reverb/bin/python"))
PEERS_PYTHON = os.environ.get("RV_PEERS_PYTHON", str(ROOT / ".venv-peers/bin/python"))
