"""`laser-vfl runs`: list runs, and approve, reject or publish one."""
