"""Programs that run by turns: started, driven step by step, and frozen whole while another one runs."""
