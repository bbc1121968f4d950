"""What /proc tells of one process."""


def name_and_start(pid: int) -> tuple[str, int]:
    """Its name and field 22 of its stat line, the start time in ticks. Raises: OSError when it is gone."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        text = file.read()
    name, _, rest = text.partition("(")[2].rpartition(")")
    # Field 22 of the line; `rest` starts with field 3.
    return name, int(rest.split()[19])
