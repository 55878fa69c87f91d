"""Batches and files: `/v1/files`, `/v1/batches` and `/v1/messages/batches`: many requests at once, answered in time."""
