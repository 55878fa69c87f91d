"""Tests of log sinks."""
