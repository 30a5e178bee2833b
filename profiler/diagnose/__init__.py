"""From what was measured to what it means: the verdict in one sentence, and the rules that find causes."""
