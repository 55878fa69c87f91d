"""Bytes to frames and back, whatever the frames mean."""
