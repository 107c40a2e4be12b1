"""What is seen while training."""

import io

import pytest

from dure.errors import SpecError
from dure.train.progress import Bar, Lines, Silent, reporter


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Time:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_line_an_epoch():
    out, now = io.StringIO(), Time()
    lines = Lines(out, now=now)
    lines.begin("epoch 1/2", 300, 100)
    now.now = 2.0
    lines.advance(200, {"loss": 0.7})
    now.now = 5.0
    lines.end({"loss": 0.5, "accuracy": 0.75})
    lines.close()
    assert out.getvalue() == "epoch 1/2: loss 0.5000, accuracy 0.7500; 200 steps in 2.0 s, 100 steps/s\n"


def test_a_long_epoch_shows_a_line_every_half_minute():
    out, now = io.StringIO(), Time()
    lines = Lines(out, now=now)
    lines.begin("epoch 1/1", None, 0)
    for _ in range(70):
        now.now += 1.0
        lines.advance(5, {"loss": 0.25})
    assert out.getvalue().splitlines() == [
        "epoch 1/1: 150 steps, loss 0.2500, 5.0 steps/s",
        "epoch 1/1: 300 steps, loss 0.2500, 5.0 steps/s",
    ]


def test_a_bar_shows_loss_speed_and_time_left_in_80_columns_and_leaves_a_line():
    out, now = Terminal(), Time()
    bar = Bar(out, now=now, width=200)
    bar.begin("epoch 10/100", 12_000, 0)
    now.now = 10.0
    bar.advance(2_000, {"loss": 0.5})
    drawn = out.getvalue()
    assert "2,000/12,000 steps  loss 0.5000  200 steps/s  0:50" in drawn
    plain = "".join(part.partition("m")[2] if part[:1] == "[" else part for part in drawn.split("\x1b"))
    assert max(len(line) for line in plain.replace("\r", "\n").splitlines()) <= 82
    bar.say("note [1]")
    bar.end({"loss": 0.25})
    bar.close()
    assert "note [1]" in out.getvalue()
    assert out.getvalue().endswith("epoch 10/100: loss 0.2500; 2,000 steps in 10.0 s, 200 steps/s\n")


def test_a_bar_is_drawn_at_most_four_times_a_second():
    out, now = Terminal(), Time()
    bar = Bar(out, now=now)
    bar.begin("epoch 1/1", 1000, 0)
    sizes = []
    for _ in range(100):
        now.now += 0.01
        bar.advance(1, {"loss": 0.5})
        sizes.append(len(out.getvalue()))
    bar.close()
    assert 3 <= len(set(sizes)) <= 5


@pytest.mark.parametrize(
    ("verbose", "terminal", "once", "kind"),
    [
        ("auto", True, False, Bar),
        ("auto", False, False, Lines),
        ("auto", True, True, Bar),
        ("auto", False, True, Silent),
        (0, True, False, Silent),
        (False, True, False, Silent),
        (1, True, False, Bar),
        (1, False, False, Lines),
        (True, False, True, Lines),
        (2, True, False, Lines),
        (2, False, True, Lines),
    ],
)
def test_the_way_to_report_fits_the_place(verbose, terminal, once, kind):
    out = Terminal() if terminal else io.StringIO()
    assert type(reporter(verbose, once=once, file=out)) is kind


def test_only_the_chief_reports():
    assert type(reporter(1, is_chief=False, file=Terminal())) is Silent


@pytest.mark.parametrize("verbose", [3, -1, "yes", None])
def test_another_way_is_refused(verbose):
    with pytest.raises(SpecError, match='verbose is .*; it is "auto", 0'):
        reporter(verbose)


def test_silence_is_complete(capsys):
    silent = Silent()
    silent.begin("x", 1, 0)
    silent.advance(1, {"loss": 1.0})
    silent.say("x")
    silent.end({})
    silent.close()
    assert capsys.readouterr() == ("", "")
