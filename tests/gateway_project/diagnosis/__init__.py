"""Tests of the checks of a deployment."""
