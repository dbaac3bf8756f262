use super::*;

fn holder(age_secs: u64, ended: bool, held: i64) -> InstanceRow {
    InstanceRow {
        id: InstanceId(1),
        name: "a".into(),
        host: "h".into(),
        pid: 1,
        process: None,
        version: String::new(),
        workers: 5,
        queues: vec![],
        pools: vec![],
        classes: BTreeMap::new(),
        started_at: Timestamp::UNIX_EPOCH,
        heartbeat_at: Timestamp::UNIX_EPOCH,
        heartbeat_age: Duration::from_secs(age_secs),
        lease: Duration::from_secs(30),
        stopped_at: None,
        lost_at: ended.then_some(Timestamp::UNIX_EPOCH),
        held,
        process_gone: false,
    }
}

#[test]
fn admission_depends_on_holder() {
    use Admission::*;
    use Recovery::*;
    for (age, ended, held, gone, recovery, expected) in [
        (5, false, 0, false, Manual, Taken),
        (5, false, 3, false, Manual, Taken),
        (5, false, 3, false, Auto, Wait(Duration::from_secs(25))),
        (5, false, 3, true, Manual, LeftTasks),
        (5, false, 0, true, Manual, Recover),
        (5, false, 3, true, Auto, Recover),
        (31, false, 3, false, Manual, LeftTasks),
        (31, false, 0, false, Manual, Recover),
        (31, false, 3, false, Auto, Recover),
        (31, true, 0, false, Manual, Free),
        (31, true, 3, false, Manual, LeftTasks),
        (31, true, 3, false, Auto, Recover),
    ] {
        let holder = InstanceRow { process_gone: gone, ..holder(age, ended, held) };
        assert_eq!(
            decide_admission(&holder, recovery),
            expected,
            "heartbeat {age} s ago, ended {ended}, holds {held}, gone {gone}, {recovery:?}"
        );
    }
}

#[test]
fn default_names_do_not_collide() {
    use Recovery::*;
    let named = |name: &str, age| InstanceRow { name: name.into(), ..holder(age, false, 0) };
    let gone = InstanceRow { process_gone: true, ..named("web-3", 1) };
    let instances = [named("web", 1), named("web-2", 31), gone];
    for (instances, last, recovery, expected) in [
        (&[][..], None, Auto, "web"),
        (&instances[..1], None, Auto, "web-2"),
        (&instances[..], None, Auto, "web-3"),
        (&instances[..], None, Manual, "web-2"),
        (&instances[..], Some("old"), Auto, "old"),
        (&instances[..], Some("web"), Auto, "web-3"),
    ] {
        assert_eq!(free_name(instances, "web", last, recovery), expected, "{last:?} {recovery:?}");
    }
}
