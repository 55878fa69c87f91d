"""Tests of `gateway_project`."""
