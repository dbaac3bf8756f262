//! Metrics of this process.

use task_engine_web::Recorder;

#[test]
fn durations_are_counted_in_buckets() {
    let recorder = Recorder::install().expect("the first");
    assert!(Recorder::install().is_err(), "there is one");
    let labels = [("class", "a"), ("outcome", "success")];
    metrics::counter!("task_engine_executions_total", &labels).increment(2);
    metrics::histogram!("task_engine_execution_seconds", &labels).record(0.02);
    metrics::histogram!("task_engine_execution_seconds", &labels).record(1000.0);
    let text = recorder.render();
    for line in [
        r#"task_engine_executions_total{class="a",outcome="success"} 2"#,
        r#"task_engine_execution_seconds_bucket{class="a",outcome="success",le="0.01"} 0"#,
        r#"task_engine_execution_seconds_bucket{class="a",outcome="success",le="0.03"} 1"#,
        r#"task_engine_execution_seconds_bucket{class="a",outcome="success",le="+Inf"} 2"#,
        r#"task_engine_execution_seconds_count{class="a",outcome="success"} 2"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
}
