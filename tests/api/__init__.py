"""Tests of the API over HTTP, one file for each topic; docstrings name the section of its specification."""
