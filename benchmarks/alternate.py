"""Programs that train the same network on the same rows, timed in alternation."""

import statistics
import time

import numpy as np

import dure


def orders(case, seed=0):
    rng = np.random.default_rng(seed)
    steps = case.rows // case.batch
    while True:
        yield rng.permutation(case.rows)[: steps * case.batch].reshape(steps, case.batch).astype(np.int32)


def by_hand(epoch, case):
    """A timed epoch of a loop by hand; the shuffle is inside, as it is in Dure's."""
    order = orders(case)

    def run():
        start = time.perf_counter()
        epoch(next(order))
        return time.perf_counter() - start

    return run


def by_dure(model, strategy, case, x, y, **options):
    """The second epoch of a `Trainer.fit`: by then its rows lie on the device, as those of the loops by hand do."""
    trainer = dure.Trainer(model, strategy, **options)

    def run():
        history = trainer.fit(x, y, epochs=2, batch_size=case.batch, verbose=0)
        return history.epoch_seconds[1]

    return run


def compare(name, ours, theirs, case, pairs, *, factor=1, is_chief=True):
    """Times two programs in alternation and prints the median ratio, over `factor`, with its quartiles."""
    ours(), theirs()
    ratios, seconds = [], ([], [])
    for repeat in range(pairs):
        first, second = (ours, theirs) if repeat % 2 else (theirs, ours)
        a, b = first(), second()
        mine, other = (a, b) if repeat % 2 else (b, a)
        seconds[0].append(mine), seconds[1].append(other)
        ratios.append(other / mine / factor)
    low, _, high = statistics.quantiles(ratios, n=4)
    steps = case.rows // case.batch
    row = {
        "name": name,
        "ratio": statistics.median(ratios),
        "quartiles": [low, high],
        "steps_per_s": steps / statistics.median(seconds[0]),
        "hand_steps_per_s": steps / statistics.median(seconds[1]),
        "pairs": pairs,
    }
    if is_chief:
        print(
            f"{name:58s} {row['ratio']:5.2f} [{low:.2f}, {high:.2f}]   "
            f"{row['steps_per_s']:8,.1f} against {row['hand_steps_per_s']:8,.1f} steps/s",
            flush=True,
        )
    return row
