"""What the coordinator decides: state machines without network, disk or clock."""
