"""What happens to times and memory as a table grows, and as it lives long."""
