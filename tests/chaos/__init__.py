"""Faults of processes, stores, disk, clock and providers under load, and a scorecard of what came of each."""
