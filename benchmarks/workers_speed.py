"""Two processes of one device and one thread each: Dure's trainer against loops written by hand.

Both processes hold all the programs of a row, which take turns, in turned order each time; a ratio is the other's
seconds over Dure's for the same rows, so 1 is as fast and more is faster.

- every step: the gradients meet at each step. By hand: `jax.distributed`, a `scan` inside `shard_map`, the gradients in
  one flat vector and one psum (`hand.jax_processes`).
- every 100 steps: local SGD, against twice the speed of one process with one thread that trains alone meanwhile. The
  two share a batch of twice the rows, so that each computes what the one does; a second row has the same batch for
  both.

Run: dure run --workers 2 benchmarks/workers_speed.py [--nets seed large] [--pairs 7] [--json out.json]
"""

import argparse
import json
from pathlib import Path

import dure

every_step = dure.strategy_from_env()

import hand
import jax
from alternate import by_dure, by_hand, compare
from networks import CASES, data, jax_model

SYNC_EVERY = 100


def by_one(case, x, y):
    """An epoch of the chief alone; the other process waits for it at the next exchange."""
    return by_dure(jax_model(case.name), dure.SingleDevice(), case, x, y) if every_step.is_chief else lambda: 1.0


def local(batch, case, x, y):
    """An epoch of local SGD on batches of so many rows."""
    strategy = dure.MultiWorkerMirrored(sync_every=SYNC_EVERY)
    return by_dure(jax_model(case.name), strategy, case._replace(batch=batch), x, y)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=["seed", "large"], choices=list(CASES))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    if every_step.is_chief:
        print(f"JAX {jax.__version__}, {every_step.num_workers} processes of one {jax.devices()[0].platform} device")
    for net in args.nets:
        case = CASES[net]
        # Every step costs some milliseconds of exchange: fewer of them say as much.
        short = case._replace(rows=min(case.rows, 400 * case.batch))
        x, y = data(case)
        few = x[: short.rows], y[: short.rows]
        ours = by_dure(jax_model(net), every_step, short, *few)
        theirs = by_hand(hand.jax_processes(net, *few, case.batch), short)
        told = {"pairs": args.pairs, "is_chief": every_step.is_chief}
        rows = [compare(f"{net}, batch {case.batch}, every step / by hand", ours, theirs, short, **told)]
        for batch, what in ((2 * case.batch, "twice the batch"), (case.batch, "the same batch")):
            name = f"{net}, every {SYNC_EVERY} steps, {what} / twice one process"
            ours = local(batch, case, x, y)
            rows.append(compare(name, ours, by_one(case, x, y), case, factor=2, **told))
        found += [{"net": net, **row} for row in rows]
    if args.json and every_step.is_chief:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
