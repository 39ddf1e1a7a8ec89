"""How much in all: ledgers of rows and their totals, and the join of volumes with prices."""
