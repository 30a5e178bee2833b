"""Makes another revision of the user's program ready to run beside the working tree."""
