"""Tests of the embedded stores."""
