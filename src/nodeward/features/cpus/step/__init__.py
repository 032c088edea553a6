"""How events change which CPUs containers have.

The answer to a create carries the container's own set. What changes for others is a goal: the cgroup is written and
read back. What the runtime remembers is put right with its next question about that container.
"""
