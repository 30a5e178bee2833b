"""The wall: the types, the files and their loading. Writers and readers meet only here."""
