"""What a comparison predicts before it runs: one device measured, this machine's calibration, the cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dure.advise import single
from dure.advise.calibrate import calibrate
from dure.advise.calibration import Calibration
from dure.advise.cause import replicas
from dure.advise.child import Event
from dure.advise.cost import Network, Plan, predict
from dure.advise.record import Forecast, Settings
from dure.advise.single import batch_sizes
from dure.devices.inventory import devices, fastest

__all__ = ["Basis", "forecasts", "measure"]

TIMEOUT_S = 120.0
"""What each measuring process may take, if a training run may take as long."""


class Basis(NamedTuple):
    """What predictions rest on.

    Attributes:
        network: the model, measured on one device.
        machine: this machine.
    """

    network: Network
    machine: Calibration


def measure(
    request: Mapping[str, Any],
    settings: Settings,
    say: Callable[[str], None],
    *,
    hear: Callable[[Event], None],
) -> Basis:
    """Measures what predictions rest on, in fresh processes.

    Args:
        request: what every child is told: model, data and seed.
        settings: what is to be compared.
        say: takes a line that says what is done.
        hear: takes each event on the way.

    Raises:
        SpecError: the model or the data are refused.
        DataError: so are the data.
        StepError: one device could not be measured, or the machine could not.
    """
    sizes = batch_sizes(settings.batch_size, map(replicas, settings.strategies))
    shares = not any(device.kind != "cpu" and not device.virtual for device in fastest(devices()))
    # The machine only after the model: what is wrong with that one is found in seconds.
    timeout_s = min(settings.timeout_s, TIMEOUT_S)
    network = single.measure(request, sizes, say, shares=shares, counted=False, timeout_s=timeout_s, hear=hear)
    return Basis(network, calibrate(say))


def forecasts(basis: Basis | None, settings: Settings, rows: int) -> tuple[tuple[Forecast, ...], str]:
    """What each strategy will take.

    Args:
        basis: what was measured; None predicts nothing.
        settings: what is compared.
        rows: training rows of an epoch; 0 where that is not known.

    Returns:
        The predictions, and why some are missing, in words; empty where none is.
    """
    if basis is None or not rows:
        return (), ""
    plan = Plan(settings.batch_size, rows, settings.epochs)
    found, missing = [], []
    for strategy in settings.strategies:
        try:
            said = predict(basis.network, basis.machine, strategy, plan, settings.sync_every)
        except KeyError:
            missing.append(strategy)
            continue
        # As in a measured run: `fit` alone, without the start of the processes.
        seconds = basis.network.first_step_s + (plan.steps - 1) * said.step_s
        cause = "" if said.limit is None else said.limit.value
        found.append(Forecast(strategy, seconds, said.step_s, cause, said.is_extrapolated))
    reason = ""
    if missing:
        them = "it" if len(missing) == 1 else "them"
        notes = "; ".join(basis.machine.notes) or f"the calibration has no figures for {them}"
        reason = f"{' and '.join(missing)} could not be predicted: {notes}"
    return tuple(found), reason
