"""Tests of `apps/gateway/dialects/transcription`."""
