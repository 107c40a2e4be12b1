"""What a reader of advice has to know besides."""

from __future__ import annotations

import pytest

from dure.advise.counsel import counsel
from dure.advise.machines import read
from dure.advise.pace import Member, Pace
from dure.advise.remarks import contest_text, pace_text, site_text
from dure.advise.versus import Contest
from unit.advise.outlooks import EXAMPLES, LARGE, beside, outlook, site


def test_one_gpu_beside_one_cpu() -> None:
    found = counsel(outlook(LARGE, site=beside(), strategies=("single",), batch_size=512))
    assert found.headline.startswith("Use the gpu alone: ")
    assert found.headline.endswith(" with the cpu beside it.")
    text = found.remarks[0]
    assert text.startswith(
        "1 gpu and 1 cpu side by side: with equal shares of 256 rows the cpu sets the pace. It computes "
    )
    assert "times as long, and the gpu waits for 98 % of that time." in text
    assert "against 667 µs without the cpu." in text
    assert "Shares by speed would give the cpu no row at all: it is slower to start than the rest is to end." in text
    assert "most systems leave the CPU out by default: TensorFlow's MirroredStrategy takes the CPU only where" in text
    assert "Dure takes the fastest kind and refuses a mix of kinds." in text


def test_a_cpu_that_is_no_burden_is_told_as_it_is() -> None:
    strong = beside(59e12, bytes_per_s="2 TB/s", dispatch_s=0)
    found = counsel(outlook(LARGE, site=strong, strategies=("single",), batch_size=20_000))
    assert found.headline.startswith("The cpu beside the gpu would pay: ")
    assert "less than without the cpu; Dure shares equally." in found.remarks[0]


def members(**rows: int) -> tuple[Member, ...]:
    return tuple(Member(name, "gpu", 2, 0.02 / (n + 1), count) for n, (name, count) in enumerate(rows.items()))


def test_several_of_a_kind_are_counted_and_gpus_are_not_called_cpus() -> None:
    met = Pace(members(old=10, new=40), 25, 0.03, 0.02, 0.01)
    text = pace_text(met)
    assert text.startswith("2 new and 2 old side by side: with equal shares of 25 rows each old sets the pace.")
    assert "2.0 times as long, and each new waits for 50 % of that time." in text
    assert (
        "Shares by speed (40 for each new, 10 for each old) would take 20.0 ms, no gain over leaving each old out"
        in text
    )
    assert "CPU" not in text


CONTEST = Contest(8, 16, 2, 2e-3, 3e-3, 1e-3, 2e-3, 4096, 2.5)


@pytest.mark.parametrize(
    ("met", "words"),
    [
        (CONTEST, "at a batch of 1,024 the 8 win, 2.00 ms a step against 3.00 ms of the 16."),
        (CONTEST, "Each of the 16 computes 1.00 ms less, and the sums between the machines take 2.00 ms."),
        (CONTEST, "The 16 win from a batch of 4,096 on."),
        (CONTEST, "a model 2.5 times as large, in weights and in computing, would turn it around."),
    ],
)
def test_when_the_eight_win(met: Contest, words: str) -> None:
    assert words in contest_text(met, 1024, "gpu")


def test_when_the_sixteen_win() -> None:
    text = contest_text(Contest(8, 16, 2, 3e-3, 2e-3, 2e-3, 1e-3, 512, 0.2), 1024, "gpu")
    assert "the 16 win, 2.00 ms a step against 3.00 ms of the 8." in text
    assert "Below a batch of 512 the 8 win." in text
    assert "turn it around" not in text


def test_when_the_eight_always_win() -> None:
    text = contest_text(Contest(8, 16, 2, 2e-3, 3e-3, 0.0, 1e-3, None, None), 1024, "gpu")
    assert "The 8 win at every batch of these data: the halved shares never save that much." in text
    assert "no larger model of this form turns it around: its sums would grow as much as its computing." in text


def test_a_reckoning_is_called_one() -> None:
    text = site_text(site(), 0.23)
    assert text.startswith("A reckoning, not a measurement: a-site (16 gpu in 2 machines) is not here.")
    assert "gpu is taken to reach 40 %, as the table says, of its peak" in text
    own = site_text(read(EXAMPLES / "gpu-and-cpu.toml"), 0.23)
    assert "(1 gpu and 1 cpu in 1 machine)" in own
    assert "gpu is taken to reach 23 %, as this machine reaches with it, of its peak" in own


def test_the_examples_say_what_they_are_for() -> None:
    two = outlook(
        LARGE, site=read(EXAMPLES / "two-of-eight.toml"), strategies=("single", "mirrored:8"), batch_size=1024
    )
    assert "8 gpu in one machine against 16 in 2: at a batch of 1,024 the 8 win" in counsel(two).text
    one = outlook(LARGE, site=read(EXAMPLES / "gpu-and-cpu.toml"), strategies=("single",), batch_size=256)
    assert "with equal shares of 128 rows the cpu sets the pace" in counsel(one).text
