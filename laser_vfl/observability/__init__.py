"""What a daemon tells its owner: the audit log, metrics and traffic counters."""
