"""Training: the `Trainer`, its data on the way to the devices, callbacks, progress and history."""
