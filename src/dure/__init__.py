"""Dure spreads a neural network's training over many devices and machines, and says honestly what pays.

The public names, each found on first use: `import dure` itself imports neither JAX nor NumPy nor Keras, so
that a script can still choose its devices (`dure.configure`) and a command answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dure.errors import hint

if TYPE_CHECKING:
    from dure import callbacks as callbacks
    from dure import data as data
    from dure import errors as errors
    from dure.advise.advise import advise as advise
    from dure.advise.compare import compare as compare
    from dure.cluster.spec import ClusterSpec as ClusterSpec
    from dure.devices.configuration import configure as configure
    from dure.devices.inventory import Device as Device
    from dure.devices.inventory import devices as devices
    from dure.models.model import Model as Model
    from dure.strategy.env import strategy_from_env as strategy_from_env
    from dure.strategy.mirrored import Mirrored as Mirrored
    from dure.strategy.mirrored import SingleDevice as SingleDevice
    from dure.strategy.multi_worker import MultiWorkerMirrored as MultiWorkerMirrored
    from dure.train.history import History as History
    from dure.train.trainer import Trainer as Trainer

__all__ = [
    "ClusterSpec",
    "Device",
    "History",
    "Mirrored",
    "Model",
    "MultiWorkerMirrored",
    "SingleDevice",
    "Trainer",
    "__version__",
    "advise",
    "callbacks",
    "compare",
    "configure",
    "data",
    "devices",
    "errors",
    "strategy_from_env",
]

__version__ = "0.1.0"

# Name -> (module, attribute). No attribute: the name is that module. `advise` and `devices` are the packages of that
# name, which can be called: importing any of their modules sets `dure.devices` to the package whatever this table says,
# so it has to be both.
_WHERE: dict[str, tuple[str, str | None]] = {
    "ClusterSpec": ("dure.cluster.spec", "ClusterSpec"),
    "Device": ("dure.devices.inventory", "Device"),
    "History": ("dure.train.history", "History"),
    "Mirrored": ("dure.strategy.mirrored", "Mirrored"),
    "Model": ("dure.models.model", "Model"),
    "MultiWorkerMirrored": ("dure.strategy.multi_worker", "MultiWorkerMirrored"),
    "SingleDevice": ("dure.strategy.mirrored", "SingleDevice"),
    "Trainer": ("dure.train.trainer", "Trainer"),
    "advise": ("dure.advise", None),
    "callbacks": ("dure.callbacks", None),
    "compare": ("dure.advise.compare", "compare"),
    "configure": ("dure.devices.configuration", "configure"),
    "data": ("dure.data", None),
    "devices": ("dure.devices", None),
    "errors": ("dure.errors", None),
    "strategy_from_env": ("dure.strategy.env", "strategy_from_env"),
}


if not TYPE_CHECKING:  # A type checker would take any name for one that is there.

    def __getattr__(name: str) -> object:
        if name not in _WHERE:
            raise AttributeError(f"module `dure` has no attribute `{name}`. {hint(name, _WHERE)}")
        module, attribute = _WHERE[name]
        found: object = importlib.import_module(module)
        if attribute is not None:
            found = getattr(found, attribute)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
