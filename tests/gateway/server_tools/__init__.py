"""Tests of `apps.gateway.server_tools`."""
