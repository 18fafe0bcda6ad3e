"""Formats of files that hold a bag or a part of a bag, each with a `midam.data.sources.file_names.FileReader`."""
