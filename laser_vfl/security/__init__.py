"""Authentication and authorisation: certificates, identities, credentials, tokens."""
