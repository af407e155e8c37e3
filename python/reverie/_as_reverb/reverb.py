"""What ``import reverb`` finds in the child processes of ``python -m reverie.as_reverb``, whose path begins with this folder."""

import importlib
import importlib.util
import os
import sys

del sys.modules["reverb"]  # this module, in whose place the one that is meant comes
if importlib.util.find_spec("reverie") is not None:
    import reverie

    reverie.install_as_reverb()
else:  # the Python of another environment, where reverb is what it has by that name
    folder = os.path.dirname(__file__)
    sys.path[:] = [each for each in sys.path if each != folder]
    importlib.import_module("reverb")
