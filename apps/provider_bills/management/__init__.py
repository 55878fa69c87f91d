"""Management commands of provider bills."""
