"""Which program: model architectures as chains of operations with named dimensions, and the named layouts."""
