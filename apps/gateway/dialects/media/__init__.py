"""Formats of requests that are answered with media or read it: images, speech, transcripts."""
