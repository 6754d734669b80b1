"""One script over AgentOS's contract, run against any server that claims to have it; what it saw there; and which
differences the table in docs/agentos.md explains."""
