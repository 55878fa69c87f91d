"""Operators: the admin pages of organizations and users."""
