"""Models as pure functions: `dure.Model` for plain JAX, an adaptor for compiled Keras models."""
