"""Link sources: input files to submissions, whatever their format and compression."""
