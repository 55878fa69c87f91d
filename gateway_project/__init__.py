"""Wiring: knows every app by name, holds no logic."""
