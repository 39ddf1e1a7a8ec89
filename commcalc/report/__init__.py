"""Rich tables, JSON, CSV, Markdown. Knows nothing about how numbers were made."""
