"""Fixtures and inputs that tests share: the cast, stores, upstreams and inputs of every kind."""
