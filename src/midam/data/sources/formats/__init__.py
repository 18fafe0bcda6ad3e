"""Formats of a file that holds one bag, or a part of one; a `midam.data.sources.reader.FileReader` each."""
