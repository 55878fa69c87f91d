"""Tests of the environment."""
