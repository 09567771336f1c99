"""Events, decisions and steps: values without rules."""
