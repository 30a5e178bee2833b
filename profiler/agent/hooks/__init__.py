"""One library that is watched a file: what is hooked when the program imports it."""
