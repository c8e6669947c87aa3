"""What the SQL stores share: SQL in files, numbered migrations, and sessions."""
