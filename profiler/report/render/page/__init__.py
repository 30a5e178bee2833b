"""The page of the HTML report: its template, style sheet and script, inlined into one file."""
