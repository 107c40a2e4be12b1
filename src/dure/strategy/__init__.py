"""Strategies: where state lies, how a batch is split, how gradients meet, when a step ends."""
