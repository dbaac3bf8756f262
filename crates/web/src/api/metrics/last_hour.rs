//! Attempts of the last hour by class. The window moves, so these are gauges, not
//! counters. Engines export counters themselves.

use task_engine_store::rollup::{BOUNDS_MS, ClassTotal, RollupRow, TimeHistogram};

use super::MetricsText;

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^53.
fn number(count: u64) -> f64 {
    count as f64
}

pub(super) fn text(rows: &[RollupRow]) -> String {
    let mut classes = ClassTotal::sum(rows);
    classes.sort_by(|one, other| one.class.cmp(&other.class));
    let mut text = MetricsText::default();
    attempts(&mut text, &classes);
    text.family(
        "task_engine_run_seconds_sum_last_hour",
        "Total run time of the attempts that ended in the last hour.",
        classes.iter().map(|of| (vec![("class", of.class.as_str())], of.run_secs_sum)),
    );
    buckets(
        &mut text,
        "task_engine_run_seconds_bucket_last_hour",
        "Attempts that ended in the last hour, by run time.",
        classes.iter().map(|of| (of.class.as_str(), &of.run)),
    );
    buckets(
        &mut text,
        "task_engine_wait_seconds_bucket_last_hour",
        "Attempts that ended in the last hour, by queue latency.",
        classes.iter().map(|of| (of.class.as_str(), &of.wait)),
    );
    text.0
}

fn attempts(text: &mut MetricsText, classes: &[ClassTotal]) {
    let samples = classes.iter().flat_map(|of| {
        let class = of.class.as_str();
        [("success", of.ok), ("failure", of.failed), ("other", of.other)]
            .map(|(outcome, count)| (vec![("class", class), ("outcome", outcome)], number(count)))
    });
    text.family(
        "task_engine_attempts_ended_last_hour",
        "Attempts that ended in the last hour. The empty class sums up classes above the limit; other: cancelled, released or snoozed.",
        samples,
    );
}

/// Cumulative, for `histogram_quantile`.
fn buckets<'a>(
    text: &mut MetricsText,
    name: &str,
    help: &str,
    classes: impl Iterator<Item = (&'a str, &'a TimeHistogram)>,
) {
    let bounds: Vec<String> = BOUNDS_MS
        .iter()
        .map(|ms| std::time::Duration::from_millis(*ms).as_secs_f64().to_string())
        .chain(["+Inf".to_owned()])
        .collect();
    let mut samples = Vec::new();
    for (class, histogram) in classes {
        let mut so_far = 0;
        for (bound, count) in bounds.iter().zip(histogram.counts) {
            so_far += count;
            samples.push((vec![("class", class), ("le", bound.as_str())], number(so_far)));
        }
    }
    text.family(name, help, samples);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut row = RollupRow {
            at: Timestamp::UNIX_EPOCH,
            class: "a".to_owned(),
            ok: 2,
            failed: 1,
            other: 0,
            run_secs_sum: 0.5,
            run: TimeHistogram::default(),
            wait: TimeHistogram::default(),
        };
        (row.run.counts[0], row.run.counts[6], row.run.counts[27]) = (1, 2, 1);
        let text = text(&[row.clone(), row]);
        for line in [
            r#"task_engine_attempts_ended_last_hour{class="a",outcome="success"} 4"#,
            r#"task_engine_attempts_ended_last_hour{class="a",outcome="failure"} 2"#,
            r#"task_engine_run_seconds_sum_last_hour{class="a"} 1"#,
            r#"task_engine_run_seconds_bucket_last_hour{class="a",le="0.001"} 2"#,
            r#"task_engine_run_seconds_bucket_last_hour{class="a",le="0.1"} 6"#,
            r#"task_engine_run_seconds_bucket_last_hour{class="a",le="86400"} 6"#,
            r#"task_engine_run_seconds_bucket_last_hour{class="a",le="+Inf"} 8"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}
