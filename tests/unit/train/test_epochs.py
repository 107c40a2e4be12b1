"""Where training is, and which rows make which step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dure.train.epochs import Plan, Position, order


@given(st.integers(1, 500), st.integers(1, 600))
def test_a_plan_takes_each_row_once(rows, batch_size):
    plan = Plan(rows, batch_size, shuffle=True)
    assert plan.full_steps * batch_size + plan.last_rows == rows
    assert plan.steps == plan.full_steps + (plan.last_rows > 0)
    assert 0 <= plan.last_rows < batch_size


@given(st.integers(1, 300), st.integers(0, 2**64), st.integers(0, 50))
def test_an_order_is_a_permutation_that_seed_and_turn_decide(rows, seed, turn):
    plan = Plan(rows, 7, shuffle=True)
    found = order(plan, seed, turn)
    assert found.dtype == np.int32
    assert sorted(found.tolist()) == list(range(rows))
    assert found.tolist() == order(plan, seed, turn).tolist()
    assert found.tolist() == order(plan._replace(batch_size=3), seed, turn).tolist()


def test_orders_of_turns_and_seeds_differ():
    plan = Plan(100, 7, shuffle=True)
    found = {tuple(order(plan, seed, turn)) for seed in range(3) for turn in range(3)}
    assert len(found) == 9


def test_without_shuffle_rows_come_as_they_are():
    assert order(Plan(5, 2, shuffle=False), 3, 4).tolist() == [0, 1, 2, 3, 4]


def test_the_order_of_a_seed_stays_what_it_was():
    # A checkpoint in the middle of an epoch relies on it.
    assert order(Plan(10, 5, shuffle=True), 0, 0).tolist() == ORDER


ORDER = [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]


def test_a_position_moves_on_and_is_seeded_anew():
    position = Position(seed=3).advanced(4, "plan").advanced(2, "plan")
    assert position == Position(epoch=0, step=6, seed=3, plan="plan")
    assert position.finished() == Position(epoch=1, seed=3)
    again = position.finished().finished().seeded(3)
    assert (again.epoch, again.turn, again.step, again.plan) == (2, 0, 0, "")
    assert again.finished().turn == 1


def test_a_plan_tells_itself():
    assert str(Plan(60_000, 25, shuffle=True)) == "60000 rows in batches of 25, shuffled"
    assert str(Plan(7, 2, shuffle=False)) == "7 rows in batches of 2"
