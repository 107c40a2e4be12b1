"""`dure.advise`: measures one device for a few seconds and says what several would give, before any of them trains."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, final

from dure.advise import child, listing
from dure.advise.ask import whole
from dure.advise.calibrate import calibrate
from dure.advise.calibration import Point
from dure.advise.cause import replicas
from dure.advise.cost import Network
from dure.advise.counsel import Counsel, counsel
from dure.advise.machines import read
from dure.advise.options import INTERVALS, intervals, most_devices, strategies_for
from dure.advise.outlook import Asked, Line, Outlook
from dure.advise.record import Facts
from dure.advise.reference import data_reference, model_reference
from dure.advise.report import advice_fragment, advice_page, write
from dure.advise.single import measure
from dure.devices.inventory import devices, fastest
from dure.errors import SpecError

__all__ = ["Advice", "Wish", "advise", "look"]

LARGE = 4096
"""From a batch of so many rows on no larger one is measured."""

Say = Callable[[str], None]
"""Takes a line that says what is done."""


@final
class Advice:
    """What `advise` predicts, in words, as a table, and as a page.

    Args:
        outlook: Everything that it rests on.
    """

    def __init__(self, outlook: Outlook) -> None:
        self.outlook = outlook

    @cached_property
    def counsel(self) -> Counsel:
        """The advice worked out: every line with its prediction, and all words apart."""
        return counsel(self.outlook)

    @property
    def verdict(self) -> str:
        """What is fastest, why, from where on it would be otherwise, and what would change it, in plain words."""
        return self.counsel.text

    @property
    def table(self) -> str:
        """One line a strategy and way to meet, as text of at most 80 columns."""
        return listing.text(self.counsel)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report: one HTML file that needs no network.

        Args:
            path: Where; a file that is there is replaced.

        Returns:
            The path written.

        Raises:
            SpecError: The folder is not there or cannot be written.
        """
        return write(Path(path), advice_page(self.counsel))

    def to_dict(self) -> dict[str, Any]:
        """What was measured, each prediction, and the words, as plain values that JSON can carry."""
        worked = self.counsel
        return {
            **self.outlook.to_dict(),
            "lines": [_plain(line) for line in worked.lines],
            "verdict": {
                "best": worked.best,
                "headline": worked.headline,
                "reasons": list(worked.reasons),
                "changes": list(worked.changes),
                "remarks": list(worked.remarks),
                "text": worked.text,
            },
        }

    def __str__(self) -> str:
        return f"{self.table}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        return advice_fragment(self.counsel)


def advise(
    model: object = None,
    data: object = "fashion_mnist",
    *,
    strategies: str | Iterable[str] | None = None,
    epochs: int = 10,
    batch_size: int = 25,
    repeat: int = 1,
    sync_every: str | int | Iterable[str | int] = INTERVALS,
    seed: int = 0,
    timeout_s: float = 1800.0,
    machines: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Advice:
    """Says what several devices would give, before any of them trains.

    One device of this machine is measured for a few seconds in fresh processes, and so is this machine itself where no
    calibration of it is kept. The rest is reckoned. This process's own devices are not touched. A script that calls it
    keeps the call under `if __name__ == "__main__":`, because the fresh processes import the script.

    Args:
        model: As `dure.compare` takes it; None is the seed network: 784-128-10 with dropout.
        data: As `dure.compare` takes it.
        strategies: What to predict: `single`, `mirrored:N` and `multi-worker:N`. None chooses by the machines.
        epochs: Passes over the training rows.
        batch_size: Rows of one global batch.
        repeat: How many times the device is measured; the quickest counts, since other work only ever adds time.
        sync_every: How often replicas meet, one way or several: `"step"`, numbers of steps, `"epoch"`.
        seed: Seed of weights and data order while measuring.
        timeout_s: What one measuring process may take, seconds.
        machines: A TOML file that describes machines that are not here; None is this machine.
        progress: Whether to write a line to stderr when a measurement begins.

    Returns:
        The result: `.table`, `.verdict`, `.save(path)`, `.to_dict()`.

    Raises:
        SpecError: Something is wrong as written, or cannot reach a fresh process.
        DataError: The data are missing or damaged.
        StepError: The device could not be measured.

    Example:
        >>> advice = dure.advise("networks:make_model", "digits", batch_size=256)  # doctest: +SKIP
        >>> print(advice.verdict)  # doctest: +SKIP
        >>> advise(strategies=["single", "mirored:2"])
        Traceback (most recent call last):
        ...
        dure.errors.SpecError: strategy `mirored:2` is not known. Did you mean `mirrored`? ...
    """
    wish = Wish(strategies, epochs, batch_size, repeat, sync_every, seed, timeout_s, machines)
    return Advice(look(model, data, wish, say=_print if progress else _keep_silent))


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wrote, not read yet: as the arguments of `advise`."""

    strategies: str | Iterable[str] | None
    epochs: int
    batch_size: int
    repeat: int
    sync_every: str | int | Iterable[str | int]
    seed: int
    timeout_s: float
    machines: str | os.PathLike[str] | None


def look(model: object, data: object, wish: Wish, *, say: Say, command: str = "") -> Outlook:
    """Checks what was asked, and measures what advice rests on.

    Args:
        model: As in `advise`.
        data: As in `advise`.
        wish: The rest of what was asked.
        say: Takes the lines of progress.
        command: What asks the same again; empty for the call in Python.

    Raises:
        SpecError: Something is wrong as written, or cannot reach a fresh process.
        DataError: The data are missing or damaged.
        StepError: The device could not be measured.
    """
    if os.environ.get(child.INSIDE):
        raise SpecError(
            "`dure.advise` was called by a process that itself measures for it: it imports the script for its model. "
            'Put the call under `if __name__ == "__main__":`'
        )
    began, begin = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    for name in ("epochs", "batch_size", "repeat"):
        whole(name, getattr(wish, name))
    whole("seed", wish.seed, least=0)
    site = None if wish.machines is None else read(wish.machines)
    ways, there = intervals(wish.sync_every), devices()
    strategies = strategies_for(wish.strategies, site, there)
    # Made with mode 0700: the model's and the data's files lie in it.
    with tempfile.TemporaryDirectory(prefix="dure-advise-") as folder:
        model_plain, model_words = model_reference(model, Path(folder))
        data_plain, data_words = data_reference(data, Path(folder))
        request = {"model": model_plain, "data": data_plain, "folder": folder, "seed": wish.seed}
        here = calibrate(say)
        # One thread is what a device or a process has that shares the cores of this machine.
        shares = site is None and here.kind == "cpu"
        network, facts = _measured(request, wish, strategies, shares, say)
    asked = Asked(model_words, data_words, strategies, ways, wish.batch_size, wish.epochs, wish.seed)
    return Outlook(
        asked=asked,
        facts=facts,
        network=network,
        here=here,
        most=most_devices(strategies, site, there, here.cores),
        site=site,
        virtual=all(device.kind == "cpu" or device.virtual for device in fastest(there)),
        command=command or _call(asked, wish),
        began=began,
        took_s=time.monotonic() - begin,
    )


def _sizes(batch_size: int, strategies: Iterable[str]) -> tuple[int, ...]:
    """The rows at which one device is measured: the smallest share, the batch, and one beyond it.

    The last shows what a larger batch gains. Of large batches it is left out: the order of its rows would take memory.
    """
    share = -(-batch_size // max(replicas(strategy) for strategy in strategies))
    if batch_size < LARGE:
        return tuple(sorted({share, batch_size, max(512, 2 * batch_size)}))
    return tuple(sorted({min(share, -(-batch_size // 2)), batch_size}))


def _measured(
    request: Mapping[str, Any], wish: Wish, strategies: Iterable[str], shares: bool, say: Say
) -> tuple[Network, Facts]:
    """What one device does with the model, and what the data turned out to be."""
    told: dict[str, Any] = {}
    sizes = _sizes(wish.batch_size, strategies)
    found = [
        measure(request, sizes, say, shares=shares, timeout_s=wish.timeout_s, hear=told.update)
        for _ in range(wish.repeat)
    ]
    return reduce(_quicker, found), Facts(**told["facts"])


def _quicker(one: Network, other: Network) -> Network:
    """The shorter time of each point that both have: other work only ever adds time."""

    def least(points: Sequence[Point], others: Sequence[Point]) -> tuple[Point, ...]:
        return tuple(min(pair, key=lambda point: point.seconds) for pair in zip(points, others, strict=False))

    return replace(
        one,
        points=least(one.points, other.points),
        points_one=least(one.points_one, other.points_one),
        first_step_s=min(one.first_step_s, other.first_step_s),
    )


def _call(asked: Asked, wish: Wish) -> str:
    """The call in one line; objects by what they are in words."""
    shown = [repr(asked.model), repr(asked.data), f"strategies={list(asked.strategies)}"]
    shown += [f"{name}={getattr(wish, name)!r}" for name in ("epochs", "batch_size", "repeat", "seed")]
    shown.append(f"sync_every={list(asked.sync_every)}")
    if wish.machines is not None:
        shown.append(f"machines={os.fspath(wish.machines)!r}")
    return f"dure.advise({', '.join(shown)})"


def _plain(line: Line) -> dict[str, Any]:
    """A line as plain values."""
    found = line.prediction
    known = {} if found is None else {"seconds": found.seconds, "start_s": found.start_s, "step_s": found.step_s}
    main = found.limit if found else None
    return {
        "strategy": line.strategy,
        "sync_every": line.sync_every,
        "devices": line.devices,
        "seconds": None,
        "start_s": None,
        "step_s": None,
        **known,
        "steps_per_s": 1 / found.step_s if found else None,
        "ratio": line.ratio if found else None,
        "limit": main.value if main else None,
        "causes_s": {part.cause.value: part.seconds for part in found.split.parts} if found else None,
        "pays_at_batches": [list(pair) for pair in line.pays],
        "fits": line.fits,
        "is_extrapolated": found.is_extrapolated if found else None,
    }


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _keep_silent(line: str) -> None:
    """Takes lines that nobody wants to see."""
