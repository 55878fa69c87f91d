"""Tests of the supervisor and its processes."""
