"""Every frame on the wire, as pydantic models; pure."""
