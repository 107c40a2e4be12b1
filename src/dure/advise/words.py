"""Advice in plain words. Pure functions of what was measured and asked: no clock, no files, no devices."""

from __future__ import annotations

from dataclasses import dataclass

from dure.advise.cause import Cause, Part, Split
from dure.advise.outlook import SAME, Basis, Line, Outlook, Reach, at_batch, kinds, ranges, reach, split_part
from dure.advise.quantity import bytes_text, percent_text, seconds_text

__all__ = ["NAMES", "best_of", "changes_text", "every_text", "headline", "line_text", "pays_text"]

NAMES = {
    Cause.BATCH: "smaller batches",
    Cause.STRATEGY: "the strategy",
    Cause.CORES: "shared cores",
    Cause.EXCHANGE: "the exchange",
    Cause.START: "the start",
}
"""The causes, short."""

MANY = (Cause.BATCH, Cause.CORES)
"""Those whose name is a plural."""


@dataclass(frozen=True, slots=True)
class Best:
    """Which lines win.

    Attributes:
        same_numbers: the fastest of those that give one device's numbers; `single` where nothing is clearly faster.
        of_all: the fastest of all, local SGD too; the same line where nothing is clearly faster.
    """

    same_numbers: Line
    of_all: Line


def best_of(found: tuple[Line, ...]) -> Best:
    """The lines that win by more than the model's doubt; where nothing does, `single`.

    Args:
        found: all lines, `single` first.
    """
    single = found[0]
    known = [line for line in found if line.prediction is not None and line.fits]
    kept = [line for line in known if line.sync_every == "step"]
    same = _leader(single, kept)
    return Best(same, _leader(same, known))


def _leader(base: Line, known: list[Line]) -> Line:
    faster = [line for line in known if line.ratio < (1 - SAME) * base.ratio]
    return min(faster, key=lambda line: line.ratio, default=base)


def headline(found: tuple[Line, ...]) -> str:
    """The first sentence: what to use.

    Args:
        found: all lines, `single` first.
    """
    single, best = found[0], best_of(found)
    assert single.prediction is not None
    if not single.fits and best.same_numbers is single:
        return "Use none of these: weights and optimizer do not fit into a device's memory."
    if best.same_numbers is not single:
        line = best.same_numbers
        return f"Use {line.strategy}: {_took(line, single)}, {line.ratio:.2f} times single's, with the same numbers."
    if best.of_all is not single:
        line = best.of_all
        return (
            f"Use single for the same numbers: nothing that gives them is predicted to be faster. {line.strategy}, "
            f"{every_text(line.sync_every)}, is: {_took(line, single)}."
        )
    time = seconds_text(single.prediction.seconds)
    if single.prediction.start_s > single.prediction.seconds / 2:
        time += f", of which {seconds_text(single.prediction.start_s)} is the start"
    known = [line for line in found[1:] if line.prediction is not None]
    if not known:
        return f"Use single: there is nothing to set against it. It takes {time}."
    if any(line.ratio < 1 + SAME and line.sync_every == "step" for line in known):
        return f"Use single: nothing is predicted to be clearly faster. It takes {time}."
    said = f"Use single: one device is predicted to be the fastest, {time}."
    near = [line for line in known if line.ratio < 1 + SAME]
    if near:
        line = min(near, key=lambda one: one.ratio)
        said += f" Local SGD comes close: {line.strategy}, {every_text(line.sync_every)}, {_took(line, single)}."
    return said


def _took(line: Line, single: Line) -> str:
    assert line.prediction is not None
    assert single.prediction is not None
    return f"{seconds_text(line.prediction.seconds)} against {seconds_text(single.prediction.seconds)}"


def every_text(sync_every: str | int) -> str:
    """How often replicas meet, in words.

    Example:
        >>> every_text("step"), every_text(10), every_text("epoch")
        ('meeting every step', 'meeting every 10 steps', 'meeting every epoch')
    """
    return f"meeting every {sync_every} steps" if isinstance(sync_every, int) else f"meeting every {sync_every}"


def line_text(outlook: Outlook, on: Basis, single: Line, line: Line) -> str:
    """One strategy against one device: by how much, why, and from which batch on it would be otherwise.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        single: the line of one device.
        line: the strategy's.
    """
    name = line.strategy if line.sync_every == "step" else f"{line.strategy}, {every_text(line.sync_every)},"
    if line.prediction is None:
        why = "; ".join(outlook.here.notes) or "no such team was measured"
        return f"{name}: no prediction, because {why}."
    if line.devices == 1:
        return f"{name}: as single, {seconds_text(line.prediction.seconds)}; it has nobody to meet."
    if abs(line.ratio - 1) < SAME:
        said = f"would take about as long as single ({_took(line, single)})"
    else:
        said = f"would take {line.ratio:.2f} times as long as single ({_took(line, single)})"
    split = line.prediction.split
    sentences = [f"{name} {said}.", _parts_text(split), _limit_text(outlook, split), pays_text(outlook, on, line)]
    return " ".join(sentence for sentence in sentences if sentence)


def _parts_text(split: Split) -> str:
    """Where the step's time goes."""
    text = (
        f"One step takes {seconds_text(split.single_s)} on one device, of which each of {split.devices} would do "
        f"{seconds_text(split.ideal_s)}, and {seconds_text(split.step_s)} there"
    )
    shown = [part for part in split.parts if abs(part.seconds) > 0.02 * split.step_s]
    if not shown:
        return f"{text}: nothing is lost."
    shown.sort(key=lambda part: -abs(part.seconds))
    return f"{text}: {', '.join(map(_part_text, shown))}."


def _part_text(part: Part) -> str:
    verb = "add" if part.seconds > 0 else "save"
    ending = "" if part.cause in MANY else "s"
    return f"{NAMES[part.cause]} {verb}{ending} {seconds_text(abs(part.seconds))}"


def _limit_text(outlook: Outlook, split: Split) -> str:
    """What takes the most, explained."""
    main = split.largest()
    if main is None:
        return ""
    explained = {
        Cause.BATCH: (
            f"{split.share} rows fill a device less than {split.batch_size} and take "
            f"{percent_text(split.share_s / split.single_s)} of their time"
        ),
        Cause.STRATEGY: "what local SGD does around a step",
        Cause.CORES: (
            f"{split.devices} devices share the {outlook.here.cores} cores that one has for itself"
            if outlook.site is None
            else "devices at work at the same time slow each other down"
        ),
        Cause.EXCHANGE: f"{_bytes(outlook.network.gradients.size_bytes)} of gradients are summed over the devices",
        Cause.START: "it is ready later",
    }
    share = percent_text(main.seconds / split.step_s)
    return f"The limit is {NAMES[main.cause]}, {share} of the step: {explained[main.cause]}."


def _bytes(size: float) -> str:
    return f"{size / 1e3:.0f} kB" if size < 1e6 else bytes_text(int(size))


def pays_text(outlook: Outlook, on: Basis, line: Line) -> str:
    """From which batch on a strategy is faster than one device, or that it never is and why.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        line: the strategy's.
    """
    asked, rows = outlook.asked.batch_size, outlook.facts.rows
    if not line.pays:
        return _never_text(at_batch(outlook, on, line.strategy, line.sync_every, rows).split)
    inside = next((pair for pair in line.pays if pair[0] <= asked and (pair[1] is None or asked <= pair[1])), None)
    low, high = inside or min(line.pays, key=lambda pair: abs(pair[0] - asked))
    would = "pays" if inside else "would pay"
    if high is None:
        return f"Its step {would} at every batch." if low == 1 else f"Its step {would} from a batch of {low:,} on."
    if low == high:
        return f"Its step {would} at a batch of {low:,}, not at smaller or larger ones."
    return f"Its step {would} at batches from {low:,} to {high:,}, not at smaller or larger ones."


def _never_text(split: Split) -> str:
    """Why no batch pays: what is left where the batch is all of the data."""
    said = f"No batch makes its step faster: even with all {split.batch_size:,} rows at once"
    main = split.largest()
    if main is None:
        return f"{said} it gains nothing."
    why = {
        Cause.CORES: ", as one device already uses all the cores",
        Cause.EXCHANGE: ", which no batch makes smaller",
    }.get(main.cause, "")
    verb = "take" if main.cause in MANY else "takes"
    return f"{said} {NAMES[main.cause]} {verb} {percent_text(main.seconds / split.step_s)}{why}."


def changes_text(outlook: Outlook, on: Basis, found: tuple[Line, ...]) -> tuple[str, ...]:
    """What would change the answer.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        found: all lines, `single` first.
    """
    single, best = found[0], best_of(found)
    told = []
    if best.same_numbers is single:
        rivals = [line for line in found[1:] if line.prediction is not None and line.sync_every == "step"]
        rivals = [line for line in rivals if line.devices > 1]
        if rivals:
            rival = min(rivals, key=lambda line: line.ratio)
            told += [
                _batch(outlook, on, rival),
                _exchange(rival),
                _cores(outlook, on, rival),
                _start(outlook, single, rival),
            ]
    else:
        told += [_smaller(best.same_numbers)]
    told += [_rarer(found, best), *_numbers(outlook, on, found)]
    return tuple(text for text in told if text)


def _batch(outlook: Outlook, on: Basis, line: Line) -> str:
    """What a larger batch gains, where there is one that pays."""
    larger = [low for low, _ in line.pays if low > outlook.asked.batch_size]
    if not larger:
        return ""
    there = at_batch(outlook, on, line.strategy, line.sync_every, larger[0] * 2)
    alone = at_batch(outlook, on, "single", "step", larger[0] * 2)
    return (
        f"A larger batch: {line.strategy} pays from {larger[0]:,} rows on; at {larger[0] * 2:,} its step takes "
        f"{seconds_text(there.step_s)} against {seconds_text(alone.step_s)}. A larger batch is another training, "
        "though."
    )


def _exchange(line: Line) -> str:
    """How fast the exchange would have to be."""
    assert line.prediction is not None
    split = line.prediction.split
    met = split_part(split, Cause.EXCHANGE)
    rest_s = split.step_s - met
    if split.step_s < split.single_s or met <= 0:
        return ""
    if rest_s >= split.single_s:
        return (
            f"A faster exchange would not do: without any, the step of {line.strategy} still takes "
            f"{seconds_text(rest_s)}, and one device's {seconds_text(split.single_s)}."
        )
    allowed_s = split.single_s - rest_s
    return (
        f"A faster exchange: {line.strategy} pays where it takes less than {seconds_text(allowed_s)} a step "
        f"in place of {seconds_text(met)}, {met / allowed_s:.1f} times as fast."
    )


def _cores(outlook: Outlook, on: Basis, line: Line) -> str:
    """What devices of their own would give."""
    assert line.prediction is not None
    split = line.prediction.split
    shared_s = split_part(split, Cause.CORES)
    if outlook.site is not None or shared_s <= 0.02 * split.step_s:
        return ""
    said = (
        f"Devices of their own: with as many cores for each of {split.devices} as one has here, a step of "
        f"{line.strategy} would take {seconds_text(split.step_s - shared_s)}"
    )
    pays = ranges(outlook, on, line.strategy, line.sync_every, own_cores=True)
    if not pays:
        return f"{said}, and still pay at no batch."
    if any(low <= split.batch_size and (high is None or split.batch_size <= high) for low, high in pays):
        return f"{said}, which pays."
    return f"{said}, and pay from a batch of {pays[-1][0]:,} on."


def _start(outlook: Outlook, single: Line, line: Line) -> str:
    """From how many epochs on a faster step makes up for a later start."""
    assert line.prediction is not None
    assert single.prediction is not None
    saved_s = single.prediction.step_s - line.prediction.step_s
    late_s = line.prediction.start_s - single.prediction.start_s
    if saved_s <= 0.02 * single.prediction.step_s or late_s <= 0 or line.ratio < 1:
        return ""
    epochs = int(late_s / (saved_s * outlook.plan.steps_per_epoch)) + 1
    return (
        f"More epochs: the steps of {line.strategy} are faster, and it starts {seconds_text(late_s)} later; from "
        f"{epochs:,} epochs on it pays."
    )


def _smaller(line: Line) -> str:
    """Where the winner would lose."""
    if any(low == 1 for low, _ in line.pays) or not line.pays:
        return ""
    low, high = line.pays[-1]
    beyond = "" if high is None else f", and above {high:,}"
    return f"A smaller batch: below {low:,} rows{beyond} one device is as fast as {line.strategy} or faster."


def _rarer(found: tuple[Line, ...], best: Best) -> str:
    """What local SGD would give."""
    if best.of_all is not best.same_numbers:
        line = best.of_all
        return (
            f"A rarer exchange: {line.strategy}, {every_text(line.sync_every)}, would take {line.ratio:.2f} times "
            "single's time. This is local SGD: its loss curve is another one, so compare what it learns too."
        )
    rare = [line for line in found if line.prediction is not None and line.sync_every != "step"]
    if not rare:
        return ""
    line = min(rare, key=lambda one: one.ratio)
    than = "single" if best.same_numbers is found[0] else best.same_numbers.strategy
    return (
        f"A rarer exchange gains nothing clear: the fastest, {line.strategy}, {every_text(line.sync_every)}, would "
        f"take {line.ratio:.2f} times single's time, and {than} is the simpler one."
    )


def _numbers(outlook: Outlook, on: Basis, found: tuple[Line, ...]) -> list[str]:
    """From how many devices on each kind pays at this batch."""
    over = [one for kind in kinds(line.strategy for line in found) if (one := reach(outlook, on, kind, "step"))]
    batch = f"The number of devices: at a batch of {outlook.asked.batch_size:,}"
    told = [f"{batch} {_reach_text(one)}." for one in over if one.pays_from is not None]
    none = [one for one in over if one.pays_from is None and len(one.seconds) > 1]
    if none:
        which = ", and ".join(f"{one.kind} with 2 to {one.seconds[-1][0]}" for one in none)
        told.append(f"{batch} no number pays: {which} {'were' if len(none) > 1 else 'was'} looked at.")
    return told


def _reach_text(over: Reach) -> str:
    most, best_s = over.seconds[-1][0], dict(over.seconds)[over.best]
    ending = "" if over.best == most else "; more take longer again"
    fastest = f"fastest with {over.best}, {seconds_text(best_s)} a step{ending}"
    return f"{over.kind} pays from {over.pays_from} on, and is {fastest}"
