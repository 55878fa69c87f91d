"""Transcription dialects, client side: reads forms, writes transcripts."""
