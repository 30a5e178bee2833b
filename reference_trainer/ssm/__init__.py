"""The second patient: teacher-student experiments on linear state-space models, and the sweep that runs them."""
