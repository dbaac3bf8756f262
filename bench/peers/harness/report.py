"""What a run says: one line a system."""

from statistics import median

OURS = "task-engine"


def summarise(system, runs, ours):
    """The figures of one system, over its repeats."""
    good = [run for run in runs if "stalled" not in run]
    summary = {
        "system": system.name,
        "version": system.version(),
        "settings": system.settings,
        "history": system.history,
        "stalled": [run["stalled"] for run in runs if "stalled" in run],
        "runs": runs,
    }
    for figure in (name for name in (good[0] if good else ()) if name != "began_at"):
        values = [run[figure] for run in good if run[figure] is not None]
        if values:
            summary[figure] = {"median": median(values), "min": min(values), "max": max(values)}
    # Of the same repeat, so that a slow moment of the machine hits both sides.
    pairs = [
        one["jobs_per_s"] / other["jobs_per_s"]
        for one, other in zip(ours, runs) if "stalled" not in one and "stalled" not in other
    ]
    if pairs:
        summary["ratio_of_pairs"] = median(pairs)
    our_rates = [run["jobs_per_s"] for run in ours if "stalled" not in run]
    if good and our_rates:
        summary["ratio"] = median(our_rates) / summary["jobs_per_s"]["median"]
    return summary


def table(summaries):
    head = (
        "system", "version", "jobs/s median (min–max)", "ours ÷ it (by pairs)", "worker µs/job",
        "server µs/job", "memory MB", "others' cores", "keeps history", "settings",
    )
    rows = [head, *(row(summary) for summary in summaries)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    for summary in summaries:
        for why in summary["stalled"]:
            lines.append(f"! {summary['system']} stalled in one of {len(summary['runs'])} runs: {why}")
    return "\n".join(lines)


def row(summary):
    def middle(figure, digits=1):
        return f"{summary[figure]['median']:.{digits}f}" if figure in summary else "–"

    rate = "stalled"
    if speed := summary.get("jobs_per_s"):
        rate = f"{speed['median']:,.0f} ({speed['min']:,.0f}–{speed['max']:,.0f})"
        if summary["stalled"]:
            rate += f", stalled {len(summary['stalled'])}×"
    ratio = "–"
    if "ratio" in summary and summary["system"] != OURS:
        ratio = f"{summary['ratio']:.2f} ({summary['ratio_of_pairs']:.2f})" if "ratio_of_pairs" in summary else f"{summary['ratio']:.2f}"
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary["settings"].items())
    return (
        summary["system"], summary["version"], rate, ratio, middle("worker_us_per_job"),
        middle("server_us_per_job"), middle("worker_memory_mb", 0), middle("others_cores", 2),
        summary["history"], settings,
    )
