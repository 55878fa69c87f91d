"""Parts of the rules against attacks: what they read beside the text that is looked at.

Each knows one kind of attack. Must never know an organization or a chat format.
"""
