"""The sandbox upstream, each behavior over real HTTP."""
