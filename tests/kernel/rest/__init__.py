"""Tests of requests and answers in Django."""
