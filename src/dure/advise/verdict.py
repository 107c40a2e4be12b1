"""A comparison's record in plain words. A pure function: no clock, no files, no devices."""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass

from dure.advise.cause import Cause, Part, Split, replicas, split
from dure.advise.quantity import percent_text, seconds_text
from dure.advise.record import Record

__all__ = ["Judgement", "Outcome", "Verdict", "judge", "ratio_interval", "score"]

SAME = 0.02
"""Ratios nearer to 1 than this are called equal, however quiet the machine was: nobody would act on less."""

ONE_RUN_NOISE = 0.05
"""How far a single run is taken to be off where nothing was repeated."""

UNEXPLAINED = 0.25
"""A step in training that is off by more than this from the measuring run's is pointed out."""


class Outcome(enum.Enum):
    """How a strategy did against the base."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One strategy against the base.

    Attributes:
        strategy: As asked.
        outcome: Faster, slower, the same within the noise, or unknown where a run is missing.
        ratio: Its median seconds divided by the base's; NaN where unknown.
        low: The least ratio that the repeats allow.
        high: The largest.
        split: Its step taken apart, or None where a measuring run is missing.
        main: What costs the most beyond an n-th of one device's step, or None where nothing stands out.
        text: All of it in words, with what to do.
    """

    strategy: str
    outcome: Outcome
    ratio: float
    low: float
    high: float
    split: Split | None
    main: Part | None
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, in plain words.

    Attributes:
        best: The strategy to use: the fastest, or the base where nothing is shown to be faster; empty if
            unknown.
        headline: What to use, in a sentence.
        judgements: One for each strategy but the base.
        remarks: What a reader has to know besides, a sentence or two each.
    """

    best: str
    headline: str
    judgements: tuple[Judgement, ...]
    remarks: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole verdict, paragraphs set apart by empty lines."""
        return "\n\n".join([self.headline, *(judgement.text for judgement in self.judgements), *self.remarks])


def judge(record: Record) -> Verdict:
    """Says which strategy pays, by how much, why the others do not, and what to do.

    Args:
        record: What was measured; trials, probes or whole strategies may be missing.

    Returns:
        The verdict; the same record always gives the same one.
    """
    base = record.settings.base
    judgements = tuple(_against(record, strategy) for strategy in record.settings.strategies if strategy != base)
    faster = [judgement for judgement in judgements if judgement.outcome is Outcome.FASTER]
    best = min(faster, key=lambda judgement: judgement.ratio).strategy if faster else base
    if not record.of(base):
        best = ""
    return Verdict(best, _headline(record, best, judgements), judgements, tuple(_remarks(record)))


def ratio_interval(times: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float, float]:
    """The ratio of two strategies' seconds and how far the repeats let it lie.

    Args:
        times: Seconds of each repeat of the strategy.
        base: Seconds of each repeat of the base.

    Returns:
        Ratio of the medians, and the least and largest ratio of any repeat of one to any repeat of the
        other. Where one of them was not repeated, at least 5 % either way.

    Example:
        >>> ratio_interval((2.0, 2.2), (1.0, 1.1))
        (2.0, 1.8181818181818181, 2.2)
    """
    ratio = statistics.median(times) / statistics.median(base)
    low, high = min(times) / max(base), max(times) / min(base)
    if len(times) == 1 or len(base) == 1:
        return ratio, min(low, ratio * (1 - ONE_RUN_NOISE)), max(high, ratio * (1 + ONE_RUN_NOISE))
    return ratio, low, high


def _against(record: Record, strategy: str) -> Judgement:
    """Judges one strategy against the base."""
    base = record.settings.base
    times, base_times = record.seconds(strategy), record.seconds(base)
    if not times or not base_times:
        nan = float("nan")
        text = _missing_text(record, strategy if not times else base, strategy)
        return Judgement(strategy, Outcome.UNKNOWN, nan, nan, nan, None, None, text)
    ratio, low, high = ratio_interval(times, base_times)
    if low <= 1 <= high or abs(ratio - 1) < SAME:
        outcome = Outcome.SAME
    else:
        outcome = Outcome.FASTER if ratio < 1 else Outcome.SLOWER
    parts = split(record, strategy)
    main = _main(record, strategy, parts, outcome)
    sentences = [
        _result_text(record, strategy, outcome, (ratio, low, high)),
        _parts_text(record, parts),
    ]
    sentences += [_cause_text(record, strategy, parts, main, outcome), _advice_text(record, strategy, main, outcome)]
    text = " ".join(sentence for sentence in sentences if sentence)
    return Judgement(strategy, outcome, ratio, low, high, parts, main, text)


def _main(record: Record, strategy: str, parts: Split | None, outcome: Outcome) -> Part | None:
    """The largest cause. The start is one too where the runs are so short that it outweighs the steps."""
    main = parts.largest() if parts else None
    start = _start(record, strategy)
    if outcome is Outcome.SLOWER and start.shown and (main is None or start.seconds > main.seconds):
        return start
    return main


def _start(record: Record, strategy: str) -> Part:
    """How much later the first updates came than the base's, spread over the steps of the run."""
    trials, base = record.of(strategy), record.of(record.settings.base)
    steps = max(1, trials[0].steps)
    firsts = [trial.first_step_s for trial in trials]
    base_firsts = [trial.first_step_s for trial in base]
    late_s = statistics.median(firsts) - statistics.median(base_firsts)
    noise_s = (max(firsts) - min(firsts) + max(base_firsts) - min(base_firsts)) / 2
    return Part(Cause.START, max(0.0, late_s) / steps, noise_s / steps)


def _headline(record: Record, best: str, judgements: tuple[Judgement, ...]) -> str:
    """The first sentence: what to use."""
    base = record.settings.base
    if not best:
        return f"No verdict: `{base}`, which the others are set against, gave no result."
    known = [judgement for judgement in judgements if judgement.outcome is not Outcome.UNKNOWN]
    if best != base:
        ratio = next(judgement.ratio for judgement in judgements if judgement.strategy == best)
        return f"Use {best}: it takes {ratio:.2f} of {base}'s time."
    if not judgements:
        times = record.seconds(base)
        return (
            f"Only {base} was measured, {seconds_text(statistics.median(times))}: there is nothing to set it against."
        )
    if not known:
        return f"Only {base} gave a result: nothing can be said about the others."
    if all(judgement.outcome is Outcome.SAME for judgement in known):
        return f"Use {base}: nothing measured here is shown to be faster or slower."
    return f"Use {base}: nothing measured here is shown to be faster."


def _result_text(record: Record, strategy: str, outcome: Outcome, ratios: tuple[float, float, float]) -> str:
    """The ratio, by how much, and how sure."""
    base, (ratio, low, high) = record.settings.base, ratios
    times, base_times = record.seconds(strategy), record.seconds(base)
    took = f"{seconds_text(statistics.median(times))} against {seconds_text(statistics.median(base_times))}"
    runs, most = sorted((len(times), len(base_times)))
    sure = f"{low:.2f} to {high:.2f} over {runs} repeats" if runs > 1 else "one run each, taken to be 5 % off"
    if runs == 1 and most > 1:
        sure = f"{low:.2f} to {high:.2f}, one run against {most}"
    if outcome is Outcome.SAME:
        return f"{strategy} and {base}: no difference that this run can show ({took}, ratio {ratio:.2f}; {sure})."
    factor = f"{ratio:.2f} times as long as {base}"
    return f"{strategy} took {factor} ({took}; {sure})."


def _parts_text(record: Record, parts: Split | None) -> str:
    """What one step would take if nothing were lost, what it takes, and what each cause adds."""
    if parts is None:
        missing = " (measuring runs are missing)" if not record.interrupted else " (stopped before its measuring runs)"
        return f"Where its steps' time goes is not known{missing}."
    text = f"One step took {seconds_text(parts.single_s)} on one device"
    if parts.devices > 1:
        text += f", of which each of {parts.devices} would do {seconds_text(parts.ideal_s)}"
    text += f", and {seconds_text(parts.step_s)} here"
    shown = sorted((part for part in parts.parts if part.shown), key=lambda part: -abs(part.seconds))
    if not shown:
        return f"{text}; no cause of the difference is larger than the noise."
    return f"{text}: {', '.join(map(_part_text, shown))}."


def _part_text(part: Part) -> str:
    verb = "add" if part.seconds > 0 else "save"
    ending = "" if part.cause in (Cause.BATCH, Cause.CORES) else "s"
    return f"{part.cause.value} {verb}{ending} {seconds_text(abs(part.seconds))}"


def _cause_text(record: Record, strategy: str, parts: Split | None, main: Part | None, outcome: Outcome) -> str:
    """The largest cause, with its share of the step, explained."""
    if main is None or outcome is Outcome.SAME:
        return ""
    if main.cause is Cause.START:
        late_s = main.seconds * record.of(strategy)[0].steps
        return (
            f"The largest cause: the start, {seconds_text(late_s)} of the difference: tracing and compiling took "
            "longer, and the run is too short to make up for it."
        )
    assert parts is not None  # every cause but the start comes from a split
    share = f"{percent_text(main.seconds / parts.step_s)} of the step"
    if outcome is Outcome.FASTER:
        return f"What keeps it from more is mostly {main.cause.value}, {share}."
    explained = {
        Cause.STRATEGY: "what the strategy does around the step even on one device",
        Cause.BATCH: (
            f"{parts.share} rows fill a device less than {parts.batch_size}: they take "
            f"{percent_text(parts.share_s / parts.single_s)} of their time"
        ),
        Cause.CORES: _sharing(record, parts),
        Cause.EXCHANGE: _exchanging(parts),
    }
    return f"The largest cause: {main.cause.value}, {share}: {explained[main.cause]}."


def _exchanging(parts: Split) -> str:
    """What the exchange is."""
    if _has_processes(parts.strategy):
        return "the processes send one another what they found, and wait for it"
    return "the devices wait for one another and combine what they found"


def _has_processes(strategy: str) -> bool:
    return strategy.startswith("multi-worker")


def _sharing(record: Record, parts: Split) -> str:
    """Why devices at work at the same time slow each other down."""
    if any(trial.virtual for trial in record.of(parts.strategy)):
        cores = f"the {record.machine.cores} cores" if record.machine.cores > 1 else "the cores"
        who = "processes" if _has_processes(parts.strategy) else "virtual devices"
        return f"{parts.devices} {who} share {cores} of this machine"
    return "devices at work at the same time slow each other down"


def _advice_text(record: Record, strategy: str, main: Part | None, outcome: Outcome) -> str:
    """What to do about it."""
    settings = record.settings
    if outcome is Outcome.SAME:
        more = max(5, settings.repeat + 3)
        return f"Repeat more often to tell them apart (`--repeat {more}`), or take {settings.base}, the simpler one."
    if main is None:
        return f"Use {settings.base} for this job." if outcome is Outcome.SLOWER else ""
    larger = f"a larger batch (`--batch-size {settings.batch_size * 4}`)"
    devices = replicas(strategy)
    if main.cause is Cause.EXCHANGE:
        rarer = settings.sync_every * 4 if isinstance(settings.sync_every, int) else 16
        if settings.sync_every == "epoch":
            advice = f"try {larger}: the exchange is already as rare as it can be"
        else:
            advice = (
                f"try {larger} or a rarer exchange (`--sync-every {rarer}`: local SGD, whose loss curve is another one)"
            )
    elif main.cause is Cause.BATCH:
        advice = f"try {larger}, so that each replica has enough rows to fill its device"
    elif main.cause is Cause.STRATEGY:
        advice = f"try {larger} or a larger network: this cost is the same for every step, whatever is in it"
    elif main.cause is Cause.START:
        advice = "train for longer (`--epochs`): the start is paid once"
    elif any(trial.virtual for trial in record.of(strategy)):
        advice = "this part falls away on devices of their own: virtual ones rehearse a program, not its speed"
        if _has_processes(strategy):
            advice = "this part falls away on machines of their own (`dure run --nodes`)"
        if devices > record.machine.cores > 0:
            what = "processes" if _has_processes(strategy) else "devices"
            advice += f"; here use no more {what} than the {record.machine.cores} cores"
    else:
        advice = "try fewer devices, or devices that share no bus and no memory"
    if outcome is Outcome.FASTER:
        return f"For more, {advice}."
    return f"Use {settings.base} for this job, or {advice}."


def _missing_text(record: Record, missing: str, strategy: str) -> str:
    """Why there is nothing to say about a strategy."""
    failed = [failure for failure in record.failures if failure.strategy == missing]
    if failed:
        return f"{strategy}: not judged, because {missing} gave no result ({failed[-1].reason})."
    stopped = "the comparison was stopped before" if record.interrupted else "there was no run of"
    return f"{strategy}: not judged, because {stopped} {missing}."


def _remarks(record: Record) -> list[str]:
    """What a reader has to know besides: virtual devices, another result, failed repeats."""
    remarks = []
    shared = [s for s in record.settings.strategies if any(trial.virtual for trial in record.of(s))]
    virtual = " and ".join(strategy for strategy in shared if not _has_processes(strategy))
    if virtual:
        remarks.append(
            f"Rehearsal: the devices of {virtual} are virtual and share one processor. Devices of their own would not."
        )
    processes = " and ".join(strategy for strategy in shared if _has_processes(strategy))
    if processes:
        remarks.append(
            f"The processes of {processes} share this machine's cores and exchange through its memory. Machines of "
            "their own would not share cores, and would exchange over a network, which takes longer."
        )
    remarks += _foretold(record)
    remarks += _differing_results(record)
    remarks += _unexplained(record)
    failed = [failure for failure in record.failures if failure.strategy and record.of(failure.strategy)]
    remarks += [f"{failure.what} gave no result ({failure.reason}) and is left out." for failure in failed]
    if record.interrupted:
        remarks.append("The comparison was stopped before its end: this is what was measured so far.")
    return remarks


def _foretold(record: Record) -> list[str]:
    """How far off the predictions were, and whether they named the strategy that turned out to be the fastest."""
    strategies = record.settings.strategies
    errors = {strategy: error for strategy in strategies if (error := record.error(strategy)) is not None}
    if not errors:
        return []
    worst = max(errors, key=lambda strategy: abs(errors[strategy]))
    foretold, times = record.forecast(worst), record.seconds(worst)
    assert foretold is not None  # it has an error
    text = (
        f"Predicted before the runs: {worst} was the farthest off, with {seconds_text(foretold.seconds)} against "
        f"{seconds_text(statistics.median(times))} measured ({errors[worst] * 100:+.0f} %)"
    )
    if len(errors) > 1:
        said = {strategy: forecast.seconds for strategy in errors if (forecast := record.forecast(strategy))}
        took = {strategy: record.seconds(strategy) for strategy in errors}
        first, fastest = min(said, key=lambda s: said[s]), min(took, key=lambda s: statistics.median(took[s]))
        # Those that this run cannot tell apart have no order that a prediction could get wrong.
        right = ratio_interval(took[first], took[fastest])[1] <= 1 + SAME
        turned_out = "none was shown to be faster" if right else f"{fastest} was"
        text += f"; {first} was predicted to be the fastest, and {turned_out}"
    return [f"{text}."]


def _differing_results(record: Record) -> list[str]:
    """Names the strategies that learned something else than the base: speed is not worth a worse network."""
    base, remarks = record.settings.base, []
    for strategy in record.settings.strategies:
        name, found = score(record, strategy)
        base_name, expected = score(record, base)
        if strategy == base or name != base_name or found is None or expected is None:
            continue
        if "loss" not in name and abs(found - expected) > 0.02:
            worse = "worse" if found < expected else "better"
            remarks.append(f"{strategy} also learned {worse}: {name} {found:.4f} against {expected:.4f} of {base}.")
    return remarks


def _unexplained(record: Record) -> list[str]:
    """Names the strategies whose steps in training lie far from those of the measuring runs."""
    remarks = []
    for strategy in record.settings.strategies:
        parts, trials = split(record, strategy), record.of(strategy)
        if parts is None or not trials:
            continue
        step_s = statistics.median([trial.step_s for trial in trials])
        if abs(step_s - parts.step_s) > UNEXPLAINED * parts.step_s:
            remarks.append(
                f"In training a step of {strategy} took {seconds_text(step_s)}, in its measuring run "
                f"{seconds_text(parts.step_s)}: the rest is the reading of data and the ends of epochs, or "
                "the "
                "machine did something else meanwhile."
            )
    return remarks


def score(record: Record, strategy: str) -> tuple[str, float | None]:
    """Name and median of the test metric in the table: an accuracy where there is one, else the loss."""
    trials = [trial for trial in record.of(strategy) if trial.metrics]
    if not trials:
        return "", None
    names = list(trials[0].metrics)
    name = next((name for name in names if "acc" in name), names[0])
    return name, statistics.median([trial.metrics[name] for trial in trials if name in trial.metrics])
