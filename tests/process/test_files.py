"""Of several processes the chief alone writes files, Keras's callbacks among what writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from process.launched import run

SCRIPT = """
import dure

strategy = dure.strategy_from_env()

import keras
import numpy as np

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
rng = np.random.default_rng(1)
x, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 3, 40)
mine = folder / ("files-" + task[-1])
mine.mkdir()
told = []
callbacks = [
    keras.callbacks.ModelCheckpoint(mine / "model-{epoch}.keras"),
    keras.callbacks.ModelCheckpoint(mine / "best.weights.h5", monitor="loss", save_best_only=True,
                                    save_weights_only=True),
    keras.callbacks.CSVLogger(mine / "keras.csv"),
    keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: told.append(epoch)),
    dure.callbacks.CSVLog(mine / "own.csv"),
    dure.callbacks.Checkpoint(mine / "checkpoints"),
    dure.callbacks.TensorBoard(mine / "board"),
]
with strategy, dure.Trainer(model, strategy) as trainer:
    trainer.fit(x, y, epochs=2, batch_size=8, callbacks=callbacks, verbose=2)
    np.savez(folder / ("weights-" + task[-1]), *model.get_weights())
print(task, told)
"""


def test_the_chief_alone_writes_files(tmp_path: Path) -> None:
    ended = run(tmp_path, SCRIPT)
    assert ended.code == 0, ended.err
    written = sorted(path.name for path in (tmp_path / "files-0").iterdir())
    assert written == [
        "best.weights.h5",
        "board",
        "checkpoints",
        "keras.csv",
        "model-1.keras",
        "model-2.keras",
        "own.csv",
    ]
    assert list((tmp_path / "files-1").iterdir()) == []
    with np.load(tmp_path / "weights-0.npz") as mine, np.load(tmp_path / "weights-1.npz") as theirs:
        for name in mine.files:
            np.testing.assert_array_equal(mine[name], theirs[name])
    # Callbacks that write nothing are called everywhere: what they decide must be decided alike.
    assert {"worker:0 [0, 1]", "worker:1 [0, 1]"} <= set(ended.out.splitlines())
    assert len([line for line in ended.out.splitlines() if "epoch 1/2" in line]) == 1
