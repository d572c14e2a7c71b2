"""What tool authors import, and what is known of their tools."""
