"""Which processes there are, where they listen, and which of them this one is."""
