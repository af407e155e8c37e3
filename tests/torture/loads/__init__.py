"""The loads: what clients do, each kind in a file of its own. `KINDS` names them."""

from __future__ import annotations

from .adder import Adder
from .administrator import Administrator
from .bounder import Bounder
from .episodes import Episodes
from .framer import Framer
from .hauler import Hauler
from .keeper import Keeper
from .load import Load
from .queue import QueueReader, QueueWriter
from .ratio import RatioReader, RatioWriter
from .reader import Reader
from .stepper import Stepper

KINDS: dict[str, type[Load]] = {
    "keeper": Keeper,
    "adder": Adder,
    "bounder": Bounder,
    "hauler": Hauler,
    "framer": Framer,
    "episodes": Episodes,
    "stepper": Stepper,
    "queue-writer": QueueWriter,
    "queue-reader": QueueReader,
    "ratio-writer": RatioWriter,
    "ratio-reader": RatioReader,
    "reader": Reader,
    "administrator": Administrator,
}
