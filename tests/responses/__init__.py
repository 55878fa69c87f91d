"""Tests of stored responses, conversations and background runs."""
