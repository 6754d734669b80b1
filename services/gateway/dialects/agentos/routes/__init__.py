"""AgentOS's routes, one noun a file."""
