"""How many bytes a sharding moves, over which links, how long that takes, and whether it is allowed."""

__version__ = "0.1.0"
