"""Tests of `gateway config`."""
