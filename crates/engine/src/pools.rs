//! Pools: which workers take from which queues. Each pool has a dispatcher with
//! a claimer of its own, so that none waits for what another is busy with.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use task_engine_core::queue::Pool;
use task_engine_core::queue::check_queue_name;
use task_engine_core::task::DEFAULT_QUEUE;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::dispatch::{Dispatcher, End};

const DEFAULT_WORKERS: u16 = 5;

/// Workers as they were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workforce {
    /// Workers that share the queues that have none of their own; 0 for none.
    pub(crate) workers: Option<u16>,
    /// The queues that they share. `None`: `default`, and those of the classes.
    pub(crate) queues: Option<Vec<String>>,
    /// Queues with workers of their own.
    pub(crate) own: Vec<(String, u16)>,
    /// Workers for tasks of at least a priority, of all queues.
    pub(crate) reserved: Vec<(i32, u16)>,
    /// Workers for tasks of some classes, which no others take, of all queues.
    pub(crate) by_class: Vec<(Vec<String>, u16)>,
}

impl Workforce {
    /// The pools that this means for an engine whose classes have these queues,
    /// or what is wrong with it.
    pub(crate) fn pools(&self, of_classes: &BTreeSet<String>) -> Result<Vec<Pool>, String> {
        let mut pools = Vec::from_iter(self.shared(of_classes)?);
        for (queue, workers) in &self.own {
            if *workers == 0 {
                return Err(format!(
                    "queue {queue:?} needs at least one worker of its own; leave it out if nobody is to take from it"
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
                    "workers of their own for {classes:?}: name at least one class and one worker"
                ));
            }
            if let Some(class) = classes.iter().find(|class| !seen.insert(*class)) {
                return Err(format!(
                    "class {class} has workers of its own twice; name it once, with all of them"
                ));
            }
            let pool = Pool::new(queues.clone(), i32::from(*workers));
            pools.push(Pool { classes: Some(classes.clone()), ..pool });
        }
        Ok(pools)
    }

    /// The pool of the queues that have no workers of their own: it is there
    /// unless it would have no workers, or no queue.
    fn shared(&self, of_classes: &BTreeSet<String>) -> Result<Option<Pool>, String> {
        let has_own = |queue: &String| self.own.iter().any(|(own, _)| own == queue);
        let queues = self.queues.clone().unwrap_or_else(|| {
            let default = DEFAULT_QUEUE.to_owned();
            let others = of_classes.iter().filter(|queue| **queue != default).cloned();
            std::iter::once(default.clone()).chain(others).filter(|queue| !has_own(queue)).collect()
        });
        let pool = |workers: u16, queues| Ok(Some(Pool::new(queues, i32::from(workers))));
        match self.workers {
            Some(0) if self.own.is_empty() => Err("an engine needs at least one worker".to_owned()),
            Some(0) if self.queues.is_some() => Err(format!(
                "no worker takes from {}: give each a worker of its own, or the engine more than 0 shared workers",
                queues.join(", ")
            )),
            Some(0) => Ok(None),
            _ if self.queues.is_some() && queues.is_empty() => {
                Err("an engine needs at least one queue".to_owned())
            }
            Some(workers) if queues.is_empty() => Err(format!(
                "{workers} shared workers have no queue, because every queue has workers of its own; leave them out, or name a queue that they take from"
            )),
            None if queues.is_empty() => Ok(None),
            workers => pool(workers.unwrap_or(DEFAULT_WORKERS), queues),
        }
    }
}

/// The pools that have something to do: if all classes of an engine have workers
/// of their own, the others would never get a task.
pub(crate) fn with_classes(mut pools: Vec<Pool>, classes: &[String]) -> Vec<Pool> {
    let all = pools.clone();
    if all.iter().any(|pool| pool.classes.is_some()) {
        pools.retain(|pool| classes.iter().any(|class| pool.takes_class(class, &all)));
    }
    pools
}

/// What is said at the start if classes have queues that no worker takes from.
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
        "This engine takes no tasks from queue {}; serve it here with Engine::queue or --queue, or by another engine",
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

/// Tells each pool which of its workers have become free.
#[derive(Debug)]
pub(crate) struct Freed(Vec<(Range<i32>, UnboundedSender<i32>)>);

impl Freed {
    /// With the ear of each pool.
    pub(crate) fn new(numbers: &[Range<i32>]) -> (Self, Vec<UnboundedReceiver<i32>>) {
        let (mut tell, mut hear) = (Vec::new(), Vec::new());
        for workers in numbers {
            let (sender, receiver) = unbounded_channel();
            tell.push((workers.clone(), sender));
            hear.push(receiver);
        }
        (Self(tell), hear)
    }

    /// Nobody hears it when the engine ends.
    pub(crate) fn send(&self, worker: i32) {
        if let Some((_, pool)) = self.0.iter().find(|(workers, _)| workers.contains(&worker)) {
            let _ = pool.send(worker);
        }
    }
}

/// Runs all pools until the engine is to stop, or one of them says why it cannot
/// go on. They end with this, also if it is dropped.
pub(crate) async fn run<S: Send + Sync + 'static>(pools: Vec<Dispatcher<S>>) -> End {
    let mut running: JoinSet<End> = pools.into_iter().map(Dispatcher::run).collect();
    while let Some(end) = running.join_next().await {
        match end {
            Ok(End::Stopping) => {}
            Ok(end) => return end,
            Err(_) => return End::Broken,
        }
    }
    End::Stopping
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(queues: &[&str], workers: i32, lowest_priority: Option<i32>) -> Pool {
        let queues = queues.iter().map(|name| (*name).to_owned()).collect();
        Pool { queues, workers, lowest_priority, classes: None }
    }

    #[test]
    fn class_with_own_workers_is_left_to_them() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let workforce = Workforce {
            own: vec![("mail".to_owned(), 3)],
            workers: Some(2),
            by_class: vec![(names(&["add", "subtract"]), 8)],
            ..Workforce::default()
        };
        let pools = workforce.pools(&BTreeSet::new()).unwrap();
        let own = Pool {
            classes: Some(names(&["add", "subtract"])),
            ..pool(&["default", "mail"], 8, None)
        };
        assert_eq!(pools.last(), Some(&own), "from all queues of the engine");
        assert_eq!(queues(&pools), ["default", "mail"], "each once");
        assert_eq!(describe(&pools), "2 for default; 3 for mail; 8 for class add, subtract");
        let classes: Vec<String> = names(&["add", "send", "subtract"]);
        let lanes =
            |pool| task_engine_core::queue::Lanes::of(pool, &pools, classes.clone()).classes;
        assert_eq!(lanes(&pools[0]), ["send"]);
        assert_eq!(lanes(&own), ["add", "subtract"]);
        assert_eq!(with_classes(pools.clone(), &classes), pools);
        assert_eq!(with_classes(pools, &names(&["add"])), [own], "the others have nothing to do");
        let plain = Workforce::default().pools(&BTreeSet::new()).unwrap();
        assert_eq!(with_classes(plain.clone(), &[]), plain);
    }

    #[test]
    fn pools_are_as_they_were_asked_for() {
        let own = |name: &str, workers| (name.to_owned(), workers);
        for (asked, pools) in [
            (Workforce::default(), vec![pool(&["default"], 5, None)]),
            (
                Workforce { workers: Some(3), ..Workforce::default() },
                vec![pool(&["default"], 3, None)],
            ),
            (
                Workforce {
                    queues: Some(vec!["a".into(), "b".into()]),
                    reserved: vec![(10, 2)],
                    ..Workforce::default()
                },
                vec![pool(&["a", "b"], 5, None), pool(&["a", "b"], 2, Some(10))],
            ),
            (
                Workforce { own: vec![own("mail", 10), own("default", 5)], ..Workforce::default() },
                vec![pool(&["mail"], 10, None), pool(&["default"], 5, None)],
            ),
            (
                Workforce { own: vec![own("mail", 10)], ..Workforce::default() },
                vec![pool(&["default"], 5, None), pool(&["mail"], 10, None)],
            ),
            (
                Workforce { workers: Some(0), own: vec![own("mail", 10)], ..Workforce::default() },
                vec![pool(&["mail"], 10, None)],
            ),
            (
                Workforce {
                    workers: Some(2),
                    own: vec![own("mail", 10)],
                    reserved: vec![(-1, 1), (9, 1)],
                    ..Workforce::default()
                },
                vec![
                    pool(&["default"], 2, None),
                    pool(&["mail"], 10, None),
                    pool(&["default", "mail"], 1, Some(-1)),
                    pool(&["default", "mail"], 1, Some(9)),
                ],
            ),
        ] {
            assert_eq!(asked.pools(&BTreeSet::new()).as_ref(), Ok(&pools), "{asked:?}");
        }
    }

    #[test]
    fn shared_workers_serve_queues_of_classes() {
        let of_classes = ["default", "mail", "payments"].map(str::to_owned).into();
        let own = vec![("mail".to_owned(), 1)];
        let asked = Workforce { own: own.clone(), ..Workforce::default() };
        let expected = vec![pool(&["default", "payments"], 5, None), pool(&["mail"], 1, None)];
        assert_eq!(asked.pools(&of_classes), Ok(expected));
        let named = Workforce { queues: Some(vec!["a".into()]), own, ..Workforce::default() };
        let pools = named.pools(&of_classes).unwrap();
        assert_eq!(pools, [pool(&["a"], 5, None), pool(&["mail"], 1, None)]);
        let classes = [("send", "mail"), ("charge", "payments"), ("refund", "payments")];
        let warning = unserved(&pools, classes.into_iter()).unwrap();
        assert!(
            warning.contains(r#"from queue "payments" (of class charge, refund);"#),
            "{warning}"
        );
        assert_eq!(unserved(&pools, [("send", "mail")].into_iter()), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let own = |queues: &[(&str, u16)]| Workforce {
            own: queues.iter().map(|(name, workers)| ((*name).to_owned(), *workers)).collect(),
            ..Workforce::default()
        };
        let reserved =
            |reserved: &[(i32, u16)]| Workforce { reserved: reserved.to_vec(), ..own(&[]) };
        for (asked, why) in [
            (Workforce { workers: Some(0), ..own(&[]) }, "at least one worker"),
            (Workforce { queues: Some(vec![]), ..own(&[]) }, "at least one queue"),
            (
                Workforce { workers: Some(3), ..own(&[("default", 1)]) },
                "3 shared workers have no queue",
            ),
            (
                Workforce { workers: Some(0), queues: Some(vec!["a".into()]), ..own(&[("b", 1)]) },
                "no worker takes from a",
            ),
            (own(&[("mail", 0)]), "\"mail\" needs at least one worker"),
            (own(&[("", 1)]), "a queue needs a name"),
            (own(&[("mail", 1), ("mail", 2)]), "\"mail\" is named twice"),
            (
                Workforce { queues: Some(vec!["mail".into()]), ..own(&[("mail", 2)]) },
                "\"mail\" is named twice",
            ),
            (reserved(&[(5, 0)]), "at least one worker"),
            (reserved(&[(5, 1), (5, 2)]), "name each priority once"),
            (Workforce { by_class: vec![(vec![], 1)], ..own(&[]) }, "at least one class"),
            (
                Workforce {
                    by_class: vec![(vec!["a".into()], 1), (vec!["a".into()], 2)],
                    ..own(&[])
                },
                "class a has workers of its own twice",
            ),
        ] {
            let refused = asked.pools(&BTreeSet::new()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_freed_worker_is_told_to_its_own_pool() {
        let pools = [pool(&["a"], 2, None), pool(&["b"], 3, None)];
        let numbers = numbers(&pools);
        assert_eq!(numbers, [0..2, 2..5]);
        let (freed, mut heard) = Freed::new(&numbers);
        for worker in [0, 4, 2, 1] {
            freed.send(worker);
        }
        drop(freed);
        let mut of_pool = |at: usize| std::iter::from_fn(|| heard[at].try_recv().ok()).collect();
        let (first, second): (Vec<i32>, Vec<i32>) = (of_pool(0), of_pool(1));
        assert_eq!((first, second), (vec![0, 1], vec![4, 2]));
        assert_eq!(describe(&pools), "2 for a; 3 for b");
        assert_eq!(describe(&pools[..1]), "2 for a");
    }
}
