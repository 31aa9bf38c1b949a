"""What policies say of a plan: values in, verdicts out."""
