"""The verdict as a pure function of the record: who wins, by how much, why not, and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.cause import Cause
from dure.advise.record import Failure, Record, Trial
from dure.advise.verdict import Outcome, Verdict, judge, ratio_interval, score
from unit.advise.records import MS, foretold, loses_to, probes, record, trial


def one(verdict: Verdict, strategy: str = "mirrored:2") -> str:
    """The paragraph about a strategy."""
    return next(judgement.text for judgement in verdict.judgements if judgement.strategy == strategy)


def test_mirrored_wins_and_what_keeps_it_from_more_is_named() -> None:
    measured = probes("mirrored:2", 25, [10 * MS, 5.5 * MS, 5.5 * MS, 5.6 * MS, 6 * MS])
    verdict = judge(record({"single": (100.0, 101.0), "mirrored:2": (60.0, 61.0)}, measured))
    assert verdict.best == "mirrored:2"
    assert verdict.headline == "Use mirrored:2: it takes 0.60 of single's time."
    (judgement,) = verdict.judgements
    assert judgement.outcome is Outcome.FASTER
    assert "took 0.60 times as long as single (60.5 s against 100 s; 0.59 to 0.61 over 2 repeats)" in judgement.text
    assert "What keeps it from more is mostly smaller batches, 8 % of the step." in judgement.text
    assert "For more, try a larger batch (`--batch-size 100`)" in judgement.text
    assert "Use single" not in verdict.text


def test_the_fastest_of_several_winners_is_the_one_to_use() -> None:
    times = {"single": (100.0, 101.0), "mirrored:2": (60.0, 61.0), "mirrored:4": (40.0, 41.0)}
    assert judge(record(times)).best == "mirrored:4"


def test_repeats_that_overlap_show_no_difference() -> None:
    verdict = judge(record({"single": (8.0, 9.0), "mirrored:2": (8.6, 9.4)}))
    assert verdict.judgements[0].outcome is Outcome.SAME
    assert verdict.best == "single"
    assert verdict.headline == "Use single: nothing measured here is shown to be faster or slower."
    assert "mirrored:2 and single: no difference that this run can show" in verdict.text
    assert "`--repeat 5`" in verdict.text


def test_a_difference_that_nobody_would_act_on_is_none_however_quiet_the_machine() -> None:
    verdict = judge(record({"single": (10.0, 10.001), "mirrored:2": (10.1, 10.101)}))
    assert verdict.judgements[0].outcome is Outcome.SAME


@pytest.mark.parametrize(
    ("cause", "words", "advice"),
    [
        ("batch", "13 rows fill a device less than 25: they take 167 % of their time", "`--batch-size 100`"),
        ("strategy", "what the strategy does around the step even on one device", "a larger network"),
        (
            "cores",
            "2 virtual devices share the 2 cores of this machine",
            "falls away on devices of their own",
        ),
        ("exchange", "the devices wait for one another", "`--sync-every 16`"),
    ],
)
def test_mirrored_loses_and_the_largest_cause_is_named_with_its_share(cause: str, words: str, advice: str) -> None:
    verdict = judge(loses_to(cause))
    (judgement,) = verdict.judgements
    assert judgement.outcome is Outcome.SLOWER
    assert judgement.main is not None
    assert judgement.main.cause.name.lower() == cause
    assert verdict.best == "single"
    assert "mirrored:2 took 2.00 times as long as single" in judgement.text
    assert f"The largest cause: {judgement.main.cause.value}, 66 % of the step" in judgement.text
    assert words in judgement.text
    assert "Use single for this job, or" in judgement.text
    assert advice in judgement.text


@pytest.mark.parametrize(
    ("cause", "words", "advice"),
    [
        ("batch", "13 rows fill a device less than 25: they take 167 % of their time", "`--batch-size 100`"),
        ("strategy", "what the strategy does around the step even on one device", "a larger network"),
        ("cores", "2 processes share the 2 cores of this machine", "machines of their own (`dure run --nodes`)"),
        (
            "exchange",
            "the processes send one another what they found, and wait for it",
            "a rarer exchange (`--sync-every 16`: local SGD",
        ),
    ],
)
def test_several_processes_lose_and_the_largest_cause_is_named(cause: str, words: str, advice: str) -> None:
    verdict = judge(loses_to(cause, "multi-worker:2"))
    (judgement,) = verdict.judgements
    assert judgement.main is not None
    assert judgement.main.cause.name.lower() == cause
    assert verdict.headline == "Use single: nothing measured here is shown to be faster."
    assert "multi-worker:2 took 2.00 times as long as single" in judgement.text
    assert words in judgement.text
    assert advice in judgement.text
    assert "virtual" not in verdict.text


def test_several_processes_win_and_what_keeps_them_from_more_is_named() -> None:
    times = {"single": (100.0, 101.0), "mirrored:2": (90.0, 91.0), "multi-worker:2": (60.0, 61.0)}
    chain = [10 * MS, 5.1 * MS, 5.1 * MS, 5.2 * MS, 6 * MS]
    measured = (
        *probes("mirrored:2", 25, [10 * MS, 5.1 * MS, 5.1 * MS, 8.9 * MS, 9 * MS]),
        *probes("multi-worker:2", 25, chain),
    )
    verdict = judge(record(times, measured))
    assert verdict.headline == "Use multi-worker:2: it takes 0.60 of single's time."
    text = one(verdict, "multi-worker:2")
    assert "What keeps it from more is mostly the exchange, 13 % of the step." in text
    assert "For more, try a larger batch" in text
    assert [judgement.outcome for judgement in verdict.judgements] == [Outcome.FASTER, Outcome.FASTER]


def test_several_processes_on_a_machine_of_fewer_cores_are_advised_against() -> None:
    chain = [0.3 * MS, 0.1 * MS, 0.1 * MS, 0.6 * MS, 0.61 * MS]
    measured = record({"single": (8.0, 8.1), "multi-worker:4": (16.0, 16.2)}, probes("multi-worker:4", 25, chain))
    assert "here use no more processes than the 2 cores" in judge(measured).text


def test_processes_of_one_machine_are_told_from_virtual_devices() -> None:
    both = judge(record({"single": (8.0,), "mirrored:2": (16.0,), "multi-worker:2": (30.0,)}))
    assert "Rehearsal: the devices of mirrored:2 are virtual" in both.text
    assert "The processes of multi-worker:2 share this machine's cores and exchange through its memory." in both.text
    own = record({"single": (8.0,), "multi-worker:2": (5.0,)})
    own = replace(own, trials=tuple(replace(run, virtual=False, kind="gpu") for run in own.trials))
    assert judge(own).remarks == ()


def test_one_run_against_two_is_taken_to_be_off_as_well() -> None:
    verdict = judge(record({"single": (10.0, 10.1), "multi-worker:2": (31.0,)}))
    (judgement,) = verdict.judgements
    assert judgement.outcome is Outcome.SLOWER
    assert (judgement.low, judgement.high) == pytest.approx((0.95 * 31 / 10.05, 1.05 * 31 / 10.05))
    assert "(31.0 s against 10.1 s; 2.93 to 3.24, one run against 2)" in judgement.text


def test_how_far_off_the_predictions_were_is_told() -> None:
    measured = record({"single": (10.0, 10.2), "mirrored:2": (20.0,), "multi-worker:2": (30.0,)})
    said = {"single": 10.5, "mirrored:2": 17.0, "multi-worker:2": 33.0}
    off = "Predicted before the runs: mirrored:2 was the farthest off, with 17.0 s against 20.0 s measured (-15 %)"
    assert (
        f"{off}; single was predicted to be the fastest, and none was shown to be faster."
        in judge(foretold(measured, said)).remarks
    )
    wrong = judge(foretold(measured, {"single": 10.5, "mirrored:2": 9.0})).text
    assert "mirrored:2 was predicted to be the fastest, and single was." in wrong
    alone = judge(foretold(record({"single": (10.0,)}), {"single": 9.0})).text
    assert "single was the farthest off, with 9.00 s against 10.0 s measured (-10 %)." in alone
    unmeasured = judge(foretold(record({"single": ()}), {"single": 9.0}))
    assert "Predicted" not in unmeasured.text


def test_strategies_that_take_the_same_have_no_order_to_predict() -> None:
    measured = record({"single": (10.05,), "mirrored:1": (10.0,)})
    verdict = judge(foretold(measured, {"single": 9.0, "mirrored:1": 9.1}))
    assert "single was predicted to be the fastest, and none was shown to be faster." in verdict.text


def test_a_short_run_loses_to_the_start() -> None:
    base = record({"single": (2.0, 2.1), "mirrored:2": (6.0, 6.1)})
    trials = tuple(
        replace(run, steps=100, step_s=1 * MS, first_step_s=5.5 if run.strategy != "single" else 1.5)
        for run in base.trials
    )
    measured = probes("mirrored:2", 25, [1 * MS, 0.5 * MS, 0.5 * MS, 0.5 * MS, 1.2 * MS])
    verdict = judge(replace(base, trials=trials, probes=measured))
    main = verdict.judgements[0].main
    assert main is not None
    assert main.cause is Cause.START
    assert "The largest cause: the start, 4.00 s of the difference: tracing and compiling" in verdict.text
    assert "train for longer (`--epochs`)" in verdict.text


def test_causes_within_the_noise_are_not_named() -> None:
    chain = [0.3 * MS, 0.16 * MS, 0.16 * MS, 0.17 * MS, 0.18 * MS]
    measured = probes("mirrored:2", 25, chain, noise=0.4 * MS)
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)}, measured))
    assert "no cause of the difference is larger than the noise" in verdict.text
    assert "The largest cause" not in verdict.text
    assert verdict.judgements[0].text.endswith("than the noise. Use single for this job.")


def test_a_cause_that_saves_time_is_called_so() -> None:
    chain = [1 * MS, 0.3 * MS, 0.3 * MS, 0.3 * MS, 1.5 * MS]
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)}, probes("mirrored:2", 25, chain)))
    assert "the exchange adds 1.20 ms, smaller batches save 200 µs." in verdict.text


def test_one_run_each_is_taken_to_be_off() -> None:
    close = judge(record({"single": (10.0,), "mirrored:2": (10.4,)}))
    assert close.judgements[0].outcome is Outcome.SAME
    far = judge(record({"single": (10.0,), "mirrored:2": (13.0,)}))
    assert far.judgements[0].outcome is Outcome.SLOWER
    assert "one run each, taken to be 5 % off" in far.text


def test_without_measuring_runs_there_is_a_ratio_and_no_cause() -> None:
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)}))
    assert "mirrored:2 took 2.00 times" in verdict.text
    assert "Where its steps' time goes is not known (measuring runs are missing)." in verdict.text


def test_a_strategy_that_failed_is_not_judged_and_the_others_are() -> None:
    failure = Failure("mirrored:4, run 1 of 2", "mirrored:4", "its process was ended by SIGKILL")
    measured = record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2), "mirrored:4": ()}, failures=(failure,))
    verdict = judge(measured)
    assert [judgement.outcome for judgement in verdict.judgements] == [Outcome.SLOWER, Outcome.UNKNOWN]
    expected = "mirrored:4: not judged, because mirrored:4 gave no result (its process was ended by SIGKILL)."
    assert one(verdict, "mirrored:4") == expected


def test_without_the_base_there_is_no_verdict() -> None:
    failure = Failure("single, run 1 of 1", "single", "it was not done after 5 s and was ended")
    verdict = judge(record({"single": (), "mirrored:2": (16.0,)}, failures=(failure,)))
    assert verdict.best == ""
    assert verdict.headline == "No verdict: `single`, which the others are set against, gave no result."
    assert (
        "mirrored:2: not judged, because single gave no result (it was not done after 5 s and was ended)."
        in verdict.text
    )


def test_a_repeat_that_failed_is_left_out_and_named() -> None:
    failure = Failure("mirrored:2, run 2 of 2", "mirrored:2", "its process was ended by SIGABRT")
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:2": (16.0,)}, failures=(failure,)))
    assert verdict.judgements[0].outcome is Outcome.SLOWER
    assert (
        "mirrored:2, run 2 of 2 gave no result (its process was ended by SIGABRT) and is left out." in verdict.remarks
    )


def test_a_comparison_that_was_stopped_says_so() -> None:
    verdict = judge(record({"single": (8.0,), "mirrored:2": ()}, interrupted=True))
    assert "mirrored:2: not judged, because the comparison was stopped before mirrored:2." in verdict.text
    assert "this is what was measured so far" in verdict.text
    nothing = judge(record({"single": (), "mirrored:2": ()}, interrupted=True))
    assert nothing.headline.startswith("No verdict")


def test_virtual_devices_are_a_rehearsal_and_real_ones_are_not() -> None:
    virtual = record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)})
    assert any("Rehearsal: the devices of mirrored:2 are virtual" in remark for remark in judge(virtual).remarks)
    real = loses_to("cores")
    real = replace(real, trials=tuple(replace(run, virtual=False, kind="gpu") for run in real.trials))
    verdict = judge(real)
    assert not any("Rehearsal" in remark for remark in verdict.remarks)
    assert "devices at work at the same time slow each other down" in verdict.text
    assert "share no bus and no memory" in verdict.text


def test_more_virtual_devices_than_cores_are_advised_against() -> None:
    chain = [0.3 * MS, 0.1 * MS, 0.1 * MS, 0.6 * MS, 0.61 * MS]
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:4": (16.0, 16.2)}, probes("mirrored:4", 25, chain)))
    assert "use no more devices than the 2 cores" in verdict.text


def test_an_exchange_that_is_rare_already_is_made_rarer_or_left() -> None:
    lost = loses_to("exchange")
    rare = replace(lost, settings=replace(lost.settings, sync_every=16))
    assert "`--sync-every 64`" in judge(rare).text
    rarest = replace(lost, settings=replace(lost.settings, sync_every="epoch"))
    assert "already as rare as it can be" in judge(rarest).text


def test_a_faster_strategy_that_learned_less_is_pointed_out() -> None:
    times = {"single": (8.0, 8.1), "mirrored:2": (4.0, 4.1)}
    base = record(times)
    trials = tuple(
        replace(run, metrics={"loss": 0.5, "accuracy": 0.7 if run.strategy != "single" else 0.88})
        for run in base.trials
    )
    remarks = judge(replace(base, trials=trials)).remarks
    assert "mirrored:2 also learned worse: accuracy 0.7000 against 0.8800 of single." in remarks


def test_steps_far_from_those_of_the_measuring_run_are_pointed_out() -> None:
    measured = probes("mirrored:2", 25, [0.3 * MS, 0.16 * MS, 0.16 * MS, 0.17 * MS, 0.2 * MS])
    verdict = judge(record({"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)}, measured))
    assert any(remark.startswith("In training a step of mirrored:2 took 629 µs") for remark in verdict.remarks)


def test_one_strategy_has_nothing_to_be_set_against() -> None:
    assert "there is nothing to set it against" in judge(record({"single": (8.0,)})).headline


def test_without_single_the_first_strategy_is_the_base() -> None:
    verdict = judge(record({"mirrored:1": (8.0, 8.1), "mirrored:2": (16.0, 16.2)}))
    assert verdict.best == "mirrored:1"
    assert "mirrored:2 took 2.00 times as long as mirrored:1" in verdict.text


def test_the_score_is_an_accuracy_where_there_is_one_else_the_loss() -> None:
    with_accuracy = record({"single": (8.0, 8.1)})
    assert score(with_accuracy, "single") == ("sparse_categorical_accuracy", 0.88)
    run = trial("single", 0, 8.0, metrics={"loss": 0.4, "mean_squared_error": 0.1})
    assert score(replace(with_accuracy, trials=(run,)), "single") == ("loss", 0.4)
    assert score(replace(with_accuracy, trials=()), "single") == ("", None)


seconds = st.lists(st.floats(0.01, 1e4), min_size=0, max_size=3).map(tuple)


@given(
    single=seconds,
    mirrored=seconds,
    chain=st.lists(st.floats(1e-6, 1.0), min_size=5, max_size=5),
    stopped=st.booleans(),
)
def test_any_record_has_the_same_verdict_twice(
    single: tuple[float, ...], mirrored: tuple[float, ...], chain: list[float], stopped: bool
) -> None:
    measured: Record = record(
        {"single": single, "mirrored:2": mirrored}, probes("mirrored:2", 25, chain), interrupted=stopped
    )
    verdict = judge(measured)
    assert verdict == judge(Record.from_dict(measured.to_dict())) or "nan" in repr(verdict)
    assert verdict.headline
    assert "nan" not in verdict.text
    if verdict.best == "mirrored:2":
        assert max(mirrored) < min(single) * 1.06  # only 5 % of slack, and only for single runs


@given(
    times=st.lists(st.floats(0.1, 100), min_size=1, max_size=4),
    base=st.lists(st.floats(0.1, 100), min_size=1, max_size=4),
)
def test_the_interval_holds_the_ratio(times: list[float], base: list[float]) -> None:
    ratio, low, high = ratio_interval(tuple(times), tuple(base))
    assert low <= ratio * (1 + 1e-12)
    assert ratio <= high * (1 + 1e-12)


def test_a_trial_is_read_from_json_with_its_curve() -> None:
    run: Trial = trial("single", 0, 8.0)
    assert Record.from_dict(record({"single": (8.0,)}).to_dict()).trials[0].curve == run.curve
