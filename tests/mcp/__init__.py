"""Tests of the endpoints of the Model Context Protocol."""
