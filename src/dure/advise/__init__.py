"""What pays: predicted from one device, measured under several strategies, explained by subtraction, told in words.

| module | what it holds |
| --- | --- |
| `ask`, `options` | what the caller asked for, read and refused early |
| `record`, `outlook` | what was measured, and what advice rests on, as plain values |
| `cause` | where a step's time goes, by subtraction of measured runs |
| `calibrate`, `gauge`, `readings`, `calibration` | this machine measured, and kept |
| `single`, `profile` | one device measured with the model |
| `cost` | the cost model: from these to a strategy's step |
| `machines`, `units`, `reckon` | machines that are not here: read from TOML, and what they would take |
| `pace`, `versus` | unlike devices side by side; one machine against several |
| `verdict`, `words`, `remarks`, `counsel` | all of it in plain words |
| `table`, `listing`, `chart`, `landscape`, `report` | all of it for the eye |
| `trial`, `member` | the programs of a child process: one by itself, one of several |
| `work`, `probe` | what they do: one training run, some short measuring runs |
| `child`, `together`, `serve` | a fresh process with a deadline, several of them, and how they answer |
| `bench`, `ahead` | the runs of a comparison, and what is predicted before them |
| `compare`, `advise` | `dure.compare`, `dure.advise` |

Only what runs in a child process imports JAX: neither comparison nor advice touches the devices of the process that
asks for it.

`dure.advise` is this package and the public function in one, as `dure.devices` is: whatever imports one of its modules
binds the package to `dure.advise`, and `dure.advise(...)` has to work after that too. So the package can be called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from dure.advise.advise import Advice


@final
class _CallablePackage(ModuleType):
    """This package; a call gives advice."""

    def __call__(self, *args: Any, **options: Any) -> Advice:
        """Says what several devices would give: see `dure.advise.advise.advise`."""
        # Imported here: a child process takes one of its modules and must not bring the rest.
        found: Advice = importlib.import_module("dure.advise.advise").advise(*args, **options)
        return found


sys.modules[__name__].__class__ = _CallablePackage
