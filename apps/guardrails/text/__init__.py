"""Text: normalization, ASCII folding and decoding of what rules read."""
