use jiff::Timestamp;
use task_engine_core::dependency::DependencyRow;
use task_engine_core::flow::FlowTask;
use task_engine_core::task::TaskRow;

use super::*;

fn flow(classes: &[&str], edges: &[(i64, i64, DependencyCondition)]) -> FlowDetails {
    let task = |(at, class): (usize, &&str)| FlowTask {
        row: TaskRow {
            id: TaskId(i64::try_from(at).unwrap() + 1),
            class: (*class).to_owned(),
            queue: "default".to_owned(),
            priority: 0,
            status: TaskStatus::Waiting,
            created_at: Timestamp::UNIX_EPOCH,
            scheduled_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            attempts: 0,
            retry_number: 0,
            instance: None,
            error: None,
            is_blocked: false,
        },
        parent_id: None,
        name: None,
        due_at: Timestamp::UNIX_EPOCH,
        executions: Vec::new(),
    };
    let edge = |(from, to, condition): &(i64, i64, DependencyCondition)| {
        DependencyRow::new(TaskId(*to), TaskId(*from), *condition, None, None)
    };
    FlowDetails {
        correlation_id: "f".to_owned(),
        name: None,
        created_at: None,
        tasks: classes.iter().enumerate().map(task).collect(),
        dependencies: edges.iter().map(edge).collect(),
        and_more: false,
    }
}

use DependencyCondition::{End, Failure, Success};

fn of(graph: &Graph) -> Vec<(usize, usize, usize)> {
    graph.nodes.iter().map(|node| (node.tasks.len(), node.layer, node.place)).collect()
}

#[test]
fn nodes_come_after_their_parents() {
    // Diamond with a failure branch: 1 → 2, 3 → 4; 1 → 5 on failure.
    let flow = flow(
        &["a", "b", "c", "d", "alert"],
        &[(1, 2, Success), (1, 3, End), (2, 4, Success), (3, 4, Success), (1, 5, Failure)],
    );
    let graph = Graph::of(&flow);
    assert_eq!(of(&graph), [(1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 1, 2)]);
    assert_eq!((graph.layers, graph.height(), graph.collapsed), (3, 3, false));
    assert!(graph.edges.contains(&Edge { from: 0, to: 4, kind: EdgeKind::Failure }));
}

#[test]
fn members_added_later_come_before_their_dependents() {
    let graph = Graph::of(&flow(&["m", "after", "m"], &[(1, 2, Success), (3, 2, Success)]));
    assert_eq!(of(&graph), [(1, 0, 0), (1, 1, 0), (1, 0, 1)]);
}

#[test]
fn created_tasks_and_tasks_outside_are_known() {
    let mut flow = flow(&["a", "b", "c"], &[(99, 1, Success), (1, 3, Success)]);
    flow.tasks[1].parent_id = Some(TaskId(1));
    flow.tasks[2].parent_id = Some(TaskId(2));
    flow.tasks[0].parent_id = Some(TaskId(3));
    let graph = Graph::of(&flow);
    assert_eq!(graph.outside, 1);
    let edges: Vec<_> = graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind)).collect();
    assert_eq!(edges, [(0, 1, EdgeKind::Created), (0, 2, EdgeKind::Success)]);
}

#[test]
fn siblings_collapse_beyond_the_limit() {
    let mut classes = vec!["split"];
    classes.extend(std::iter::repeat_n("resize", 9_998));
    classes.push("join");
    let mut edges = Vec::new();
    for id in 2..10_000 {
        edges.push((1, id, Success));
        edges.push((id, 10_000, Success));
    }
    let mut flow = flow(&classes, &edges);
    flow.tasks[5_000].row.status = TaskStatus::Failed;
    flow.tasks[0].row.status = TaskStatus::Stopped;
    flow.tasks[9_999].row.is_blocked = true;
    let graph = Graph::of(&flow);
    assert_eq!(of(&graph), [(1, 0, 0), (9_998, 1, 0), (1, 2, 0)]);
    assert_eq!((graph.nodes[1].counts.waiting, graph.nodes[1].counts.failed), (9_997, 1));
    let states: Vec<_> = graph.nodes.iter().map(|node| node.state.as_str()).collect();
    assert_eq!(states, ["stopped", "failed", "blocked"]);
    assert_eq!((graph.edges.len(), graph.collapsed, graph.left_out), (2, true, 0));
}

#[test]
fn layers_collapse_by_class() {
    // 20 layers of 100, each task with 3 parents of the layer before.
    let classes = vec!["a"; 2_000];
    let mut edges = Vec::new();
    for id in 101..=2_000_i64 {
        let begin = (id - 1) / 100 * 100 - 100;
        for parent in 0..3 {
            edges.push((begin + (id * 7 + parent * 31) % 100 + 1, id, Success));
        }
    }
    let graph = Graph::of(&flow(&classes, &edges));
    assert_eq!((graph.nodes.len(), graph.layers), (20, 20));
    assert!(graph.nodes.iter().all(|node| node.tasks.len() == 100));
}

#[test]
fn long_chain_is_cut_around_its_first_open_task() {
    let classes = vec!["a"; 10_000];
    let edges: Vec<_> = (1..10_000).map(|id| (id, id + 1, Success)).collect();
    let mut flow = flow(&classes, &edges);
    for task in &mut flow.tasks[..5_000] {
        task.row.status = TaskStatus::Stopped;
    }
    let graph = Graph::of(&flow);
    assert_eq!((graph.nodes.len(), graph.layers, graph.left_out), (200, 200, 9_800));
    assert_eq!(graph.nodes[0].tasks, [4_999]);
    assert_eq!(graph.edges.len(), 199);
    for task in &mut flow.tasks {
        task.row.status = TaskStatus::Stopped;
    }
    assert_eq!(Graph::of(&flow).nodes[0].tasks, [0]);
}

#[test]
fn cycle_in_bad_data_ends() {
    let graph = Graph::of(&flow(&["a", "b"], &[(1, 2, Success), (2, 1, Success)]));
    assert_eq!(graph.nodes.len(), 2);
}
