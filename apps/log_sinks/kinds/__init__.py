"""Kinds of log sinks: how rows become a request. One file for each kind."""
