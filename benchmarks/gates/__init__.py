"""`ghostless bench gates`: conformance and hostile clients."""
