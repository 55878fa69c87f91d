"""Tests of health, logs and metrics."""
