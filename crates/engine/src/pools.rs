//! Pools: which workers serve which queues. Each pool has its own dispatcher and
//! claimer, so that no pool waits for another.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use task_engine_core::queue::Pool;
use task_engine_core::queue::check_queue_name;
use task_engine_core::task::DEFAULT_QUEUE;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::dispatch::Dispatcher;
use crate::session::SessionEnd;

const DEFAULT_WORKERS: u16 = 5;

/// The workers of an engine, as configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerPools {
    /// Workers that share all queues without dedicated workers; 0 for none.
    pub(crate) workers: Option<u16>,
    /// The queues that they share. `None`: `default`, and those of the classes.
    pub(crate) queues: Option<Vec<String>>,
    /// Queues with dedicated workers.
    pub(crate) dedicated: Vec<(String, u16)>,
    /// Workers for tasks of at least this priority, of all queues.
    pub(crate) reserved: Vec<(i32, u16)>,
    /// Workers for tasks of these classes, which no other workers take.
    pub(crate) by_class: Vec<(Vec<String>, u16)>,
}

impl WorkerPools {
    /// The pools for an engine whose classes have these queues, or what is wrong.
    pub(crate) fn pools(&self, of_classes: &BTreeSet<String>) -> Result<Vec<Pool>, String> {
        let mut pools = Vec::from_iter(self.shared(of_classes)?);
        for (queue, workers) in &self.dedicated {
            if *workers == 0 {
                return Err(format!(
                    "queue {queue:?} needs at least one worker; leave it out if this engine does not serve it"
                ));
            }
            let queues = vec![queue.clone()];
            pools.push(Pool::new(queues, i32::from(*workers)));
        }
        let queues: Vec<String> = pools.iter().flat_map(|pool| pool.queues.clone()).collect();
        let mut seen = HashSet::new();
        for queue in &queues {
            check_queue_name(queue).map_err(|error| error.to_string())?;
            if !seen.insert(queue) {
                return Err(format!(
                    "queue {queue:?} is named twice; name it once, with all of its workers"
                ));
            }
        }
        let mut seen = HashSet::new();
        for (priority, workers) in &self.reserved {
            if *workers == 0 || !seen.insert(priority) {
                return Err(format!(
                    "workers reserved for priority {priority} and up: name each priority once, with at least one worker"
                ));
            }
            let pool = Pool::new(queues.clone(), i32::from(*workers));
            pools.push(Pool { lowest_priority: Some(*priority), ..pool });
        }
        let mut seen = HashSet::new();
        for (classes, workers) in &self.by_class {
            if *workers == 0 || classes.is_empty() {
                return Err(format!(
                    "workers for {classes:?}: name at least one class and one worker"
                ));
            }
            if let Some(class) = classes.iter().find(|class| !seen.insert(*class)) {
                return Err(format!(
                    "class {class} has dedicated workers twice; name it once, with all of them"
                ));
            }
            let pool = Pool::new(queues.clone(), i32::from(*workers));
            pools.push(Pool { classes: Some(classes.clone()), ..pool });
        }
        Ok(pools)
    }

    /// The pool of the queues without dedicated workers; `None` if it would have no
    /// workers or no queue.
    fn shared(&self, of_classes: &BTreeSet<String>) -> Result<Option<Pool>, String> {
        let is_dedicated = |queue: &String| self.dedicated.iter().any(|(name, _)| name == queue);
        let queues = self.queues.clone().unwrap_or_else(|| {
            let default = DEFAULT_QUEUE.to_owned();
            let others = of_classes.iter().filter(|queue| **queue != default).cloned();
            std::iter::once(default.clone())
                .chain(others)
                .filter(|queue| !is_dedicated(queue))
                .collect()
        });
        let pool = |workers: u16, queues| Ok(Some(Pool::new(queues, i32::from(workers))));
        match self.workers {
            Some(0) if self.dedicated.is_empty() => {
                Err("an engine needs at least one worker".to_owned())
            }
            Some(0) if self.queues.is_some() => Err(format!(
                "no worker serves {}: give each a dedicated worker, or the engine more than 0 shared workers",
                queues.join(", ")
            )),
            Some(0) => Ok(None),
            _ if self.queues.is_some() && queues.is_empty() => {
                Err("an engine needs at least one queue".to_owned())
            }
            Some(workers) if queues.is_empty() => Err(format!(
                "{workers} shared workers have no queue, because every queue has dedicated workers; leave them out, or name a queue that they serve"
            )),
            None if queues.is_empty() => Ok(None),
            workers => pool(workers.unwrap_or(DEFAULT_WORKERS), queues),
        }
    }
}

/// The pools that can get a task: if all classes of an engine have dedicated
/// workers, the other workers never would.
pub(crate) fn with_classes(mut pools: Vec<Pool>, classes: &[String]) -> Vec<Pool> {
    let all = pools.clone();
    if all.iter().any(|pool| pool.classes.is_some()) {
        pools.retain(|pool| classes.iter().any(|class| pool.takes_class(class, &all)));
    }
    pools
}

/// A warning if classes have queues that no worker serves.
pub(crate) fn unserved<'a>(
    pools: &[Pool],
    classes: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    let served = queues(pools);
    let mut unserved: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (class, queue) in classes.filter(|(_, queue)| !served.iter().any(|one| one == queue)) {
        unserved.entry(queue).or_default().push(class);
    }
    if unserved.is_empty() {
        return None;
    }
    let each = unserved.iter().map(|(queue, classes)| {
        let shown = classes.iter().take(CLASSES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = classes.len().saturating_sub(CLASSES_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{queue:?} (of class {shown}{more})")
    });
    Some(format!(
        "This engine does not serve queue {}; serve it here with Engine::queue or --queue, or with another engine",
        each.collect::<Vec<_>>().join(", ")
    ))
}

const CLASSES_SHOWN_MAX: usize = 5;

/// How many workers there are in all.
pub(crate) fn workers(pools: &[Pool]) -> i32 {
    pools.iter().map(|pool| pool.workers).sum()
}

/// All queues, each once.
pub(crate) fn queues(pools: &[Pool]) -> Vec<String> {
    let open = pools.iter().filter(|pool| pool.lowest_priority.is_none());
    let mut seen = HashSet::new();
    open.flat_map(|pool| pool.queues.clone()).filter(|queue| seen.insert(queue.clone())).collect()
}

/// For the log: the workers and queues of each pool.
pub(crate) fn describe(pools: &[Pool]) -> String {
    let each = pools.iter().map(|pool| match (pool.lowest_priority, &pool.classes) {
        (Some(priority), _) => format!("{} from priority {priority} up", pool.workers),
        (None, Some(classes)) => format!("{} for class {}", pool.workers, classes.join(", ")),
        (None, None) => format!("{} for {}", pool.workers, pool.queues.join(", ")),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Numbers the workers of all pools, from 0 up.
pub(crate) fn numbers(pools: &[Pool]) -> Vec<Range<i32>> {
    let mut next = 0;
    let number = |pool: &Pool| {
        let first = next;
        next += pool.workers;
        first..next
    };
    pools.iter().map(number).collect()
}

/// Sends the numbers of workers that have become free to their pools.
#[derive(Debug)]
pub(crate) struct FreeWorkers(Vec<(Range<i32>, UnboundedSender<i32>)>);

impl FreeWorkers {
    /// With the receiver of each pool.
    pub(crate) fn new(numbers: &[Range<i32>]) -> (Self, Vec<UnboundedReceiver<i32>>) {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for workers in numbers {
            let (sender, receiver) = unbounded_channel();
            senders.push((workers.clone(), sender));
            receivers.push(receiver);
        }
        (Self(senders), receivers)
    }

    /// The receiver is gone when the engine ends.
    pub(crate) fn send(&self, worker: i32) {
        if let Some((_, pool)) = self.0.iter().find(|(workers, _)| workers.contains(&worker)) {
            let _ = pool.send(worker);
        }
    }
}

/// Runs all dispatchers until the engine is to stop, or one of them cannot go on.
/// If this is dropped, they end, too.
pub(crate) async fn run<S: Send + Sync + 'static>(pools: Vec<Dispatcher<S>>) -> SessionEnd {
    let mut running: JoinSet<SessionEnd> = pools.into_iter().map(Dispatcher::run).collect();
    while let Some(end) = running.join_next().await {
        match end {
            Ok(SessionEnd::Stopping) => {}
            Ok(end) => return end,
            Err(_) => return SessionEnd::Broken,
        }
    }
    SessionEnd::Stopping
}

#[cfg(test)]
mod tests;
