"""Documents that are made of a plan and what it rests on: status, history, explanation."""
