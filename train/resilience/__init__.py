"""The processes of a run: how they meet, wait for each other, hang and end."""
