"""Runs programs in turn: starts them, lets them run step by step, and freezes each with all its processes while another
runs."""
