//! Workers and queues, as arguments and as text.

use task_engine::Engine;
use task_engine_core::queue::Pool;
use task_engine_core::queue::check_queue_name;
use task_engine_core::task::DEFAULT_QUEUE;

use crate::escape::summary;
use crate::executables::{Executable, programs, resources};

/// A queue to serve, and how many workers of its own it has, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueArg {
    name: String,
    workers: Option<u16>,
}

impl QueueArg {
    /// `mail` or `mail=10`. A name may contain `=`; then the number is needed, so
    /// that a number with a typing error is not taken for a part of the name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, workers) = match text.rsplit_once('=') {
            Some((name, workers)) => (name, Some(workers)),
            None => (text, None),
        };
        check_queue_name(name).map_err(|error| error.to_string())?;
        let workers = workers.map(|number| {
            let why = |why| format!("{why}; for a queue named {text:?}, write {text}=10");
            number_of_workers(number, "mail=10").map_err(why)
        });
        let workers = workers.transpose()?;
        Ok(Self { name: name.to_owned(), workers })
    }
}

/// Workers for tasks of at least a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReserveArg {
    priority: i32,
    workers: u16,
}

impl ReserveArg {
    /// `10=2`
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some((priority, workers)) = text.split_once('=') else {
            return Err("write PRIORITY=N, like 10=2".to_owned());
        };
        let Ok(priority) = priority.parse() else {
            return Err(format!("{priority:?} is not a priority: write PRIORITY=N, like 10=2"));
        };
        Ok(Self { priority, workers: number_of_workers(workers, "10=2")? })
    }
}

fn number_of_workers(text: &str, example: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(workers) if (1..=10_000).contains(&workers) => Ok(workers),
        _ => Err(format!("{text:?} is not a number of workers from 1 to 10000, as in {example}")),
    }
}

/// The arguments about workers and queues.
#[derive(Debug)]
pub(crate) struct WorkerArgs {
    pub(crate) workers: Option<u16>,
    pub(crate) queues: Vec<QueueArg>,
    pub(crate) reserve: Vec<ReserveArg>,
}

/// The default of --workers.
const DEFAULT_WORKERS: u16 = 5;

impl WorkerArgs {
    /// Fewer workers, with a warning, if the system does not allow as many programs
    /// as they would run.
    pub(crate) fn limited(mut self, executables: &[Executable]) -> Self {
        let wanted = programs(executables, self.count());
        let Some(limit) = resources::program_limit().filter(|limit| limit.programs < wanted) else {
            return self;
        };
        let asked = self.count();
        let fit = |workers: u16| resources::scaled(workers, wanted, limit.programs);
        self.workers = match self.workers {
            Some(0) => Some(0),
            // The default queue has its own workers, and no other queue shares any.
            None if !self.shares() => None,
            workers => Some(fit(workers.unwrap_or(DEFAULT_WORKERS))),
        };
        for queue in &mut self.queues {
            queue.workers = queue.workers.map(fit);
        }
        for reserved in &mut self.reserve {
            reserved.workers = fit(reserved.workers);
        }
        tracing::warn!(
            "{} workers instead of {asked}: the limits allow {} programs, because {}",
            self.count(),
            limit.programs,
            limit.because
        );
        self
    }

    /// Whether some workers share queues.
    fn shares(&self) -> bool {
        let is_default = |queue: &QueueArg| queue.name == DEFAULT_QUEUE;
        let own = self.queues.iter().any(|queue| is_default(queue) && queue.workers.is_some());
        self.workers.is_some() || !own
    }

    fn count(&self) -> u64 {
        let shared = if self.shares() { self.workers.unwrap_or(DEFAULT_WORKERS) } else { 0 };
        let own = self.queues.iter().filter_map(|queue| queue.workers);
        let reserved = self.reserve.iter().map(|reserved| reserved.workers);
        own.chain(reserved).chain([shared]).map(u64::from).sum()
    }

    /// Configures an engine with these workers.
    pub(crate) fn apply(self, mut engine: Engine<()>) -> Engine<()> {
        if let Some(workers) = self.workers {
            engine = engine.workers(workers);
        }
        let queues = self.queues.into_iter();
        let (own, shared): (Vec<_>, Vec<_>) = queues.partition(|queue| queue.workers.is_some());
        if !shared.is_empty() {
            engine = engine.queues(shared.into_iter().map(|queue| queue.name));
        }
        for queue in own {
            engine = engine.queue(queue.name, queue.workers.unwrap_or_default());
        }
        for ReserveArg { priority, workers } in self.reserve {
            engine = engine.reserve(priority, workers);
        }
        engine
    }
}

/// The pools of an engine: `mail=10 default,slow=5`, `10+=2` for those that are
/// reserved for priority 10 and up, `class:add=8` for those of a class.
pub(crate) fn show(pools: &[Pool]) -> String {
    let each = pools.iter().map(|pool| match (pool.lowest_priority, &pool.classes) {
        (Some(priority), _) => format!("{priority}+={}", pool.workers),
        (None, Some(classes)) => {
            format!("class:{}={}", summary(&classes.join(","), 40), pool.workers)
        }
        (None, None) => format!("{}={}", summary(&pool.queues.join(","), 40), pool.workers),
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_with_and_without_workers() {
        let queue = |name: &str, workers| Ok(QueueArg { name: name.to_owned(), workers });
        assert_eq!(QueueArg::parse("mail"), queue("mail", None));
        assert_eq!(QueueArg::parse("mail=10"), queue("mail", Some(10)));
        assert_eq!(QueueArg::parse("a=b=3"), queue("a=b", Some(3)));
        assert_eq!(QueueArg::parse("a==3"), queue("a=", Some(3)));
        let refused = QueueArg::parse("a=b").unwrap_err();
        assert!(refused.ends_with(r#"for a queue named "a=b", write a=b=10"#), "{refused}");
        for bad in ["", "=5", "mail=", "mail=0", "mail=x", "mail=-1", "mail=10001"] {
            assert!(QueueArg::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reserved_workers_are_read() {
        assert_eq!(ReserveArg::parse("10=2"), Ok(ReserveArg { priority: 10, workers: 2 }));
        assert_eq!(ReserveArg::parse("-3=1"), Ok(ReserveArg { priority: -3, workers: 1 }));
        for bad in ["", "10", "=2", "10=", "10=0", "high=2", "99999999999=1"] {
            assert!(ReserveArg::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pools_are_shown_as_they_are_typed() {
        let pool = |queues: &[&str], workers, lowest_priority| Pool {
            queues: queues.iter().map(|name| (*name).to_owned()).collect(),
            workers,
            lowest_priority,
            classes: None,
        };
        let pools = [
            pool(&["mail"], 10, None),
            pool(&["default", "slow"], 5, None),
            pool(&["mail", "default", "slow"], 2, Some(9)),
            Pool { classes: Some(vec!["add".to_owned()]), ..pool(&["mail"], 8, None) },
        ];
        assert_eq!(show(&pools), "mail=10 default,slow=5 9+=2 class:add=8");
    }
}
