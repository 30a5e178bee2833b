"""The language-model trainer: text in chunks, a recurrent model, as found and fixed."""
