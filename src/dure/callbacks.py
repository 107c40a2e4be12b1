"""Callbacks: what a user wants done while training goes on.

A callback is any object with one or more of these methods; whichever it lacks is not called:

```
on_start(trainer)                before the first step
on_step(trainer, step, logs)     after each dispatch (many steps); step counts all updates of the weights
on_epoch(trainer, epoch, logs)   after each epoch, validation included; epoch counts from 0 over all fits
on_end(trainer, history)         at the end, also when training ends by Ctrl-C or an error
```

`logs` maps names to numbers: the metrics over the epoch so far in `on_step`, all of the epoch's in
`on_epoch`. A callback may call `trainer.stop()`, `trainer.save(path)`, `trainer.state` and
`trainer.evaluate(...)`.
"""

from dure.train.callbacks import Callback, Checkpoint, CSVLog, EarlyStopping, Subject, TensorBoard

__all__ = ["CSVLog", "Callback", "Checkpoint", "EarlyStopping", "Subject", "TensorBoard"]
