"""What this machine can compute on: names of devices, what is here, and how it is set up.

`dure.devices` is this package and the public function in one: whatever imports one of its modules binds the
package to `dure.devices`, and `dure.devices()` has to work after that too. So the package can be called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from dure.devices.inventory import Device


@final
class _CallablePackage(ModuleType):
    """This package; a call lists the devices."""

    def __call__(self) -> tuple[Device, ...]:
        """Lists the devices of this machine: see `dure.devices.inventory.devices`."""
        # Imported here: the names of devices are pure, and reading one must not bring the rest.
        found: tuple[Device, ...] = importlib.import_module("dure.devices.inventory").devices()
        return found


sys.modules[__name__].__class__ = _CallablePackage
