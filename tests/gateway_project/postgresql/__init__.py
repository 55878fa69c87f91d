"""Tests of the database backend."""
