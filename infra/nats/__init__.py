"""NATS: notifications, hints and temporary frames. What is lost here is healed by sequence; nothing here decides
anything."""
