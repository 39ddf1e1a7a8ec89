"""What moves: meshes, shardings, collectives and programs as pure values. No files, no clocks."""
