"""Another revision of the user's program, made ready to run beside the working tree."""
