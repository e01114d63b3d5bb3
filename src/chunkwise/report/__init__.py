"""What people look at: terminal tables and small charts."""
