"""The readers, each with what it promises. A module's `TARGETS` are found by looking."""
