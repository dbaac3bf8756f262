"""CPU time of processes, from /proc."""

import os

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def process_ns(pid):
    """What a process has used, over its threads.

    From the scheduler, because the ticks of `stat` are as long as a tenth of
    what a whole backend uses in one run.
    """
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def server_ns(postmaster, without):
    """What a server and all its processes have used, ended ones included,
    but not those in `without`."""
    with open(f"/proc/{postmaster}/task/{postmaster}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    living = sum(process_ns(pid) for pid in [postmaster, *children] if pid not in without)
    return living + ended_children_ns(postmaster)


def ended_children_ns(pid):
    with open(f"/proc/{pid}/stat") as file:
        # The name, in brackets, may hold spaces.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * TICK_NS


def machine_ns():
    """What all processes of the machine have used together, and what other
    virtual machines took of its cores."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, softirq, stolen, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq + stolen) * TICK_NS


def peak_memory_mb(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None
