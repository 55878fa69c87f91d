"""Configuration as code: an organization's settings as a YAML file, over the management API of a running gateway.

It needs no settings, stores or Django: `gateway config` works from any machine (docs/configuration-as-code.md).
"""
