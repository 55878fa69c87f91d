"""Faults of processes, stores, disk, clock and providers under load, and a scorecard of what came of each."""

import os

# The arrangements connect to stores as the product does, and its modules read the settings.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
