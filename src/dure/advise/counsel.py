"""All that follows from an outlook, worked out once: lines, curves, words. Pure: no clock, no files, no devices."""

from __future__ import annotations

from dataclasses import dataclass

from dure.advise.outlook import Basis, Line, Outlook, basis, lines, unlike
from dure.advise.pace import Pace
from dure.advise.quantity import seconds_text
from dure.advise.remarks import caveats, contest_text, pace_text
from dure.advise.versus import Contest, contest
from dure.advise.words import best_of, changes_text, headline, line_text

__all__ = ["Counsel", "counsel"]


@dataclass(frozen=True, slots=True)
class Counsel:
    """Advice, worked out.

    Attributes:
        outlook: what it rests on.
        on: what the cost model reads.
        lines: every strategy with every way to meet; `single` first.
        best: the strategy to use for one device's numbers.
        headline: what to use, in a sentence.
        reasons: a paragraph for each strategy that meets every step.
        changes: what would change the answer, a sentence or two each.
        mixed: unlike devices side by side, where there are some.
        several: one machine against all, where there are several.
        remarks: what a reader has to know besides.
    """

    outlook: Outlook
    on: Basis
    lines: tuple[Line, ...]
    best: str
    headline: str
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    mixed: Pace | None
    several: Contest | None
    remarks: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in words, paragraphs set apart by empty lines."""
        changes = ("What would change the answer:", *self.changes) if self.changes else ()
        return "\n\n".join([self.headline, *self.reasons, *changes, *self.remarks])


def counsel(outlook: Outlook) -> Counsel:
    """Works everything out.

    Args:
        outlook: what was asked and measured.

    Returns:
        The same for the same outlook, always.

    Raises:
        SpecError: other machines were asked about, and XLA counted nothing of the model.
    """
    on = basis(outlook)
    found = lines(outlook, on)
    single = found[0]
    first = {line.strategy: line for line in reversed(found[1:])}
    shown = [line for line in found[1:] if first[line.strategy] is line]
    mixed = unlike(outlook, on)
    several = contest(outlook, on.network)
    remarks = []
    if several is not None and outlook.site is not None:
        remarks.append(contest_text(several, outlook.asked.batch_size, outlook.site.best.name))
    if mixed is not None:
        remarks.append(pace_text(mixed))
    return Counsel(
        outlook,
        on,
        found,
        best_of(found).same_numbers.strategy,
        _headline(outlook, found, mixed),
        tuple(line_text(outlook, on, single, line) for line in shown),
        changes_text(outlook, on, found),
        mixed,
        several,
        (*remarks, *caveats(outlook, on, found)),
    )


def _headline(outlook: Outlook, found: tuple[Line, ...], mixed: Pace | None) -> str:
    """What to use; of one fast device beside slower ones, whether to take those too."""
    site = outlook.site
    if mixed is None or site is None or site.machines(site.best.name) != (1,) or not found[0].fits:
        return headline(found)
    others = " and ".join(member.name for member in mixed.members if member.name != site.best.name)
    times = f"{seconds_text(mixed.without_s)} a step, against {seconds_text(mixed.equal_s)}"
    if mixed.without_s <= mixed.equal_s:
        return f"Use the {site.best.name} alone: {times} with the {others} beside it."
    return f"The {others} beside the {site.best.name} would pay: {times} together with equal shares."
