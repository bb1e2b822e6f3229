"""`ghostless bench gates`: TLS, identities, conformance and hostile clients."""
