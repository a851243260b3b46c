"""ANE residency: on which engine Core ML plans each operation of a model, weighted by its cost."""
