"""What every command shares: options, output, and what refusals mean."""
