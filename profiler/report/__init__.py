"""Reports results: sections turn a Comparison or an Analysis into blocks, renderers turn blocks into text and pages."""
