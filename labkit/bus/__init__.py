"""CPU bus reach: what share of the memory bus the CPU cores can pull, by thread count, alone and beside the GPU."""
