"""The second bundled trainer: teacher-student experiments on linear state-space models, and their sweep."""
