"""The laser-vfl command with other constants: `-m align_constants module.NAME=1.5 -- run …`.

A test need not wait two minutes to see what happens after two minutes.
"""

import importlib
import runpy
import sys

if __name__ == "__main__":
    end = sys.argv.index("--")
    for word in sys.argv[1:end]:
        name, _, value = word.partition("=")
        module, _, constant = name.rpartition(".")
        place = importlib.import_module(module)
        assert isinstance(getattr(place, constant), float), word
        setattr(place, constant, float(value))
    sys.argv[1:] = sys.argv[end + 1 :]
    runpy.run_module("laser_vfl", run_name="__main__")
