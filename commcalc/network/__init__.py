"""How long: links and clocks. Knows nothing of transformers."""
