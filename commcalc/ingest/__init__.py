"""Foreign files: what other programs write, turned into what commcalc reads."""
