"""Stored responses: what `/v1/responses` keeps between requests and answers in the background, and conversations."""
