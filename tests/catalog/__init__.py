"""The catalog: its files, its rows, its copy in memory, its names and its listing."""
