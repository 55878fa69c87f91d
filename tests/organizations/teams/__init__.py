"""Tests of teams and service accounts."""
