"""Tests of threads, turns and fairness."""
