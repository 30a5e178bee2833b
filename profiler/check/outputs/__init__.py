"""What `check` leaves behind: its verdict in the terminal, for people, for continuous integration and for programs."""
