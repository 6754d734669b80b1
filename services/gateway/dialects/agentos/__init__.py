"""The run lifecycle of Agno's AgentOS, as HTTP routes over turns (docs/agentos.md)."""
