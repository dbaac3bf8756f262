use super::*;

fn pool(queues: &[&str], workers: i32, lowest_priority: Option<i32>) -> Pool {
    let queues = queues.iter().map(|name| (*name).to_owned()).collect();
    Pool { queues, workers, lowest_priority, classes: None }
}

#[test]
fn dedicated_class_leaves_shared_pool() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let worker_pools = WorkerPools {
        dedicated: vec![("mail".to_owned(), 3)],
        workers: Some(2),
        by_class: vec![(names(&["add", "subtract"]), 8)],
        ..WorkerPools::default()
    };
    let pools = worker_pools.pools(&BTreeSet::new()).unwrap();
    let own =
        Pool { classes: Some(names(&["add", "subtract"])), ..pool(&["default", "mail"], 8, None) };
    assert_eq!(pools.last(), Some(&own), "from all queues of the engine");
    assert_eq!(queues(&pools), ["default", "mail"], "each once");
    assert_eq!(describe(&pools), "2 for default; 3 for mail; 8 for class add, subtract");
    let classes: Vec<String> = names(&["add", "send", "subtract"]);
    let lanes = |pool| task_engine_core::queue::Lanes::of(pool, &pools, classes.clone()).classes;
    assert_eq!(lanes(&pools[0]), ["send"]);
    assert_eq!(lanes(&own), ["add", "subtract"]);
    assert_eq!(with_classes(pools.clone(), &classes), pools);
    assert_eq!(with_classes(pools, &names(&["add"])), [own], "the others have nothing to do");
    let plain = WorkerPools::default().pools(&BTreeSet::new()).unwrap();
    assert_eq!(with_classes(plain.clone(), &[]), plain);
}

#[test]
fn pools_match_settings() {
    let own = |name: &str, workers| (name.to_owned(), workers);
    for (asked, pools) in [
        (WorkerPools::default(), vec![pool(&["default"], 5, None)]),
        (
            WorkerPools { workers: Some(3), ..WorkerPools::default() },
            vec![pool(&["default"], 3, None)],
        ),
        (
            WorkerPools {
                queues: Some(vec!["a".into(), "b".into()]),
                reserved: vec![(10, 2)],
                ..WorkerPools::default()
            },
            vec![pool(&["a", "b"], 5, None), pool(&["a", "b"], 2, Some(10))],
        ),
        (
            WorkerPools {
                dedicated: vec![own("mail", 10), own("default", 5)],
                ..WorkerPools::default()
            },
            vec![pool(&["mail"], 10, None), pool(&["default"], 5, None)],
        ),
        (
            WorkerPools { dedicated: vec![own("mail", 10)], ..WorkerPools::default() },
            vec![pool(&["default"], 5, None), pool(&["mail"], 10, None)],
        ),
        (
            WorkerPools {
                workers: Some(0),
                dedicated: vec![own("mail", 10)],
                ..WorkerPools::default()
            },
            vec![pool(&["mail"], 10, None)],
        ),
        (
            WorkerPools {
                workers: Some(2),
                dedicated: vec![own("mail", 10)],
                reserved: vec![(-1, 1), (9, 1)],
                ..WorkerPools::default()
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
    let asked = WorkerPools { dedicated: own.clone(), ..WorkerPools::default() };
    let expected = vec![pool(&["default", "payments"], 5, None), pool(&["mail"], 1, None)];
    assert_eq!(asked.pools(&of_classes), Ok(expected));
    let named =
        WorkerPools { queues: Some(vec!["a".into()]), dedicated: own, ..WorkerPools::default() };
    let pools = named.pools(&of_classes).unwrap();
    assert_eq!(pools, [pool(&["a"], 5, None), pool(&["mail"], 1, None)]);
    let classes = [("send", "mail"), ("charge", "payments"), ("refund", "payments")];
    let warning = unserved(&pools, classes.into_iter()).unwrap();
    assert!(warning.contains(r#"serve queue "payments" (of class charge, refund);"#), "{warning}");
    assert_eq!(unserved(&pools, [("send", "mail")].into_iter()), None);
}

#[test]
fn invalid_worker_settings_are_refused() {
    let own = |queues: &[(&str, u16)]| WorkerPools {
        dedicated: queues.iter().map(|(name, workers)| ((*name).to_owned(), *workers)).collect(),
        ..WorkerPools::default()
    };
    let reserved =
        |reserved: &[(i32, u16)]| WorkerPools { reserved: reserved.to_vec(), ..own(&[]) };
    for (asked, why) in [
        (WorkerPools { workers: Some(0), ..own(&[]) }, "at least one worker"),
        (WorkerPools { queues: Some(vec![]), ..own(&[]) }, "at least one queue"),
        (
            WorkerPools { workers: Some(3), ..own(&[("default", 1)]) },
            "3 shared workers have no queue",
        ),
        (
            WorkerPools { workers: Some(0), queues: Some(vec!["a".into()]), ..own(&[("b", 1)]) },
            "no worker serves a",
        ),
        (own(&[("mail", 0)]), "\"mail\" needs at least one worker"),
        (own(&[("", 1)]), "a queue needs a name"),
        (own(&[("mail", 1), ("mail", 2)]), "\"mail\" is named twice"),
        (
            WorkerPools { queues: Some(vec!["mail".into()]), ..own(&[("mail", 2)]) },
            "\"mail\" is named twice",
        ),
        (reserved(&[(5, 0)]), "at least one worker"),
        (reserved(&[(5, 1), (5, 2)]), "name each priority once"),
        (WorkerPools { by_class: vec![(vec![], 1)], ..own(&[]) }, "at least one class"),
        (
            WorkerPools {
                by_class: vec![(vec!["a".into()], 1), (vec!["a".into()], 2)],
                ..own(&[])
            },
            "class a has dedicated workers twice",
        ),
    ] {
        let refused = asked.pools(&BTreeSet::new()).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn free_worker_goes_to_its_pool() {
    let pools = [pool(&["a"], 2, None), pool(&["b"], 3, None)];
    let numbers = numbers(&pools);
    assert_eq!(numbers, [0..2, 2..5]);
    let (free_workers, mut receivers) = FreeWorkers::new(&numbers);
    for worker in [0, 4, 2, 1] {
        free_workers.send(worker);
    }
    drop(free_workers);
    let mut of_pool = |at: usize| std::iter::from_fn(|| receivers[at].try_recv().ok()).collect();
    let (first, second): (Vec<i32>, Vec<i32>) = (of_pool(0), of_pool(1));
    assert_eq!((first, second), (vec![0, 1], vec![4, 2]));
    assert_eq!(describe(&pools), "2 for a; 3 for b");
    assert_eq!(describe(&pools[..1]), "2 for a");
}
