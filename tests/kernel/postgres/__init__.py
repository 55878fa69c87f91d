"""Tests of connections to PostgreSQL."""
