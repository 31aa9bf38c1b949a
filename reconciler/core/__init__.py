"""Facts and decisions. Nothing here opens a file, calls the network, reads a clock or draws at random."""
