"""What a run will cost, before anybody starts one."""
