"""What directs the emulator from outside: the control API, and the faults that it injects."""
