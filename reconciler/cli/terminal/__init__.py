"""What a person sees and presses: the console, progress, tables, signals."""
