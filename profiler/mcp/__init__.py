"""Answers the questions of agents: the tools as functions, and the server that offers them over stdio."""
