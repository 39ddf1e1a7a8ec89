"""The proof: programs run rank by rank on small tensors, against the same model on one device."""
