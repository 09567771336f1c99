"""From raw objects to what is known of them. Pure."""
