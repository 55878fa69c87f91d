"""Labelled texts for the system rules, as JSON lines: a file a rule, `ordinary.jsonl` for all, and texts made by rule.

Every text was written for this project or is made by `making.py`. A row marked `held_out` was written before the rules
were, by the same hand, and no rule was ever changed because of one: what a rule does with it, it does with texts it
does not know.
"""
