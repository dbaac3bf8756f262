//! The hook `Metrics` counts every execution, by class and outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use task_engine::hooks::Metrics;
use task_engine::sqlite::SqliteStore;
use task_engine::{Context, Failure, Json, NewTask, RetryRule, TaskEngine, TaskOptions};

/// What was recorded, by name and labels.
#[derive(Debug, Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, f64>>>);

impl Sums {
    fn of(&self, name: &str) -> f64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0.0)
    }
}

struct Sum(String, Sums);

impl Sum {
    fn add(&self, value: f64) {
        *self.1.0.lock().unwrap().entry(self.0.clone()).or_default() += value;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Sum {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Sum {
    fn record(&self, _: f64) {
        self.add(1.0);
    }
}

impl Sums {
    fn sum(&self, key: &Key) -> Arc<Sum> {
        let labels: Vec<_> = key.labels().map(|label| label.value()).collect();
        Arc::new(Sum(format!("{} {}", key.name(), labels.join(" ")), self.clone()))
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.sum(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.sum(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.sum(key))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_class_and_outcome() {
    let sums = Sums::default();
    metrics::set_global_recorder(sums.clone()).unwrap();
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let options = TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 2));
    let slow = TaskOptions::default().retry(RetryRule::never()).timeout(Duration::from_millis(20));
    let engine = TaskEngine::new(store.clone())
        .engine(())
        .instance("test")
        .hook(Metrics)
        .handle_class("good", options.clone(), |_: serde_json::Value, _: Context<()>| async {
            Ok::<_, Failure>(())
        })
        .handle_class("bad", options, |_: serde_json::Value, _: Context<()>| async {
            Err::<(), _>(Failure::from("no"))
        })
        .handle_class("later", slow.clone(), |_: serde_json::Value, _: Context<()>| async {
            Err::<(), _>(Failure::snooze(Duration::from_secs(3600)))
        })
        .handle_class("durable", slow.clone(), |_: serde_json::Value, cx: Context<()>| async move {
            cx.step("count", || async { Ok::<_, Failure>(1) }).await?;
            let hour = Duration::from_secs(3600);
            Ok::<_, Failure>(cx.wait_for::<u8>("approved", hour).await?)
        })
        .handle_class("slow", slow, |_: serde_json::Value, _: Context<()>| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, Failure>(())
        });
    let new = |class: &str| NewTask::new(class, Json::empty_object()).unwrap();
    let classes = ["good", "good", "bad", "slow", "later", "durable"];
    store.create(&classes.map(new)).await.unwrap();
    let stop = engine.stop_handle();
    let engine = tokio::spawn(engine.run_until(std::future::pending()));
    let wanted = [
        ("good success", 2.0),
        ("bad failure", 3.0),
        ("slow interrupted", 1.0),
        ("later snoozed", 1.0),
        ("durable snoozed", 1.0),
    ];
    let begun = Instant::now();
    while wanted
        .iter()
        .any(|(which, count)| sums.of(&format!("task_engine_executions_total {which}")) < *count)
    {
        assert!(begun.elapsed() < Duration::from_secs(30), "{sums:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.stop();
    engine.await.unwrap().unwrap();
    for (which, count) in wanted {
        for name in ["task_engine_executions_total", "task_engine_execution_seconds"] {
            let sum = sums.of(&format!("{name} {which}"));
            assert!((sum - count).abs() < 0.1, "{name} {which}: {sum}");
        }
    }
    for name in [
        "task_engine_claims_total ",
        "task_engine_claimed_tasks ",
        "task_engine_recorded_tasks ",
        "task_engine_recorded_steps_total ",
        "task_engine_suspensions_total ",
        "task_engine_heartbeats_total ok",
        "task_engine_heartbeat_seconds ",
    ] {
        assert!(sums.of(name) >= 1.0, "{name}: {sums:?}");
    }
    for class in ["good", "bad", "slow"] {
        let running = sums.of(&format!("task_engine_executions_running {class}"));
        assert!(running.abs() < 0.1, "{class}: {running} still run");
    }
}
