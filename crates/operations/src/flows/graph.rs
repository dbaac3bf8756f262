//! A flow as a graph: nodes in layers, each after all that it depends on.
//!
//! Large flows are collapsed until they can be read. First, tasks of one class with the same
//! parents and children become one node, then tasks of one class in one layer. A flow with too many
//! layers is cut to those around the first task that has not succeeded.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use task_engine_core::dependency::{DependencyCondition, FlowCounts};
use task_engine_core::task::{TaskId, TaskStatus};

use super::{FlowDetails, add};

/// Beyond this number of nodes, tasks are collapsed.
pub const NODES_MAX: usize = 200;
/// More edges are not drawn.
pub const EDGES_MAX: usize = 2_000;

/// The reason why an edge exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The second depends on the success of the first.
    Success,
    /// The second depends on the end of the first.
    End,
    /// The second depends on a failure of the first.
    Failure,
    /// The first created the second.
    Created,
}

impl From<DependencyCondition> for EdgeKind {
    fn from(condition: DependencyCondition) -> Self {
        match condition {
            DependencyCondition::End => Self::End,
            DependencyCondition::Failure => Self::Failure,
            _ => Self::Success,
        }
    }
}

/// The state of a node: of its task, or the most important one of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Waits for others.
    Blocked,
    /// The tasks are in this status.
    Is(TaskStatus),
}

impl NodeState {
    /// Returns `blocked`, or the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Is(status) => status.as_str(),
        }
    }

    fn of(counts: &FlowCounts) -> Self {
        match counts {
            counts if counts.failed > 0 => Self::Is(TaskStatus::Failed),
            counts if counts.running > 0 => Self::Is(TaskStatus::Running),
            counts if counts.waiting > 0 => Self::Is(TaskStatus::Waiting),
            counts if counts.blocked > 0 => Self::Blocked,
            counts if counts.cancelled > 0 => Self::Is(TaskStatus::Cancelled),
            counts if counts.stopped == 0 && counts.not_needed > 0 => {
                Self::Is(TaskStatus::Cancelled)
            }
            _ => Self::Is(TaskStatus::Stopped),
        }
    }
}

/// A task, or several tasks of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its tasks, as places in [`FlowDetails::tasks`].
    pub tasks: Vec<usize>,
    /// Its column.
    pub layer: usize,
    /// Its place in its column.
    pub place: usize,
    /// Its tasks by status.
    pub counts: FlowCounts,
    /// Its state.
    pub state: NodeState,
}

/// An edge between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The place of the first node.
    pub from: usize,
    /// The place of the second node.
    pub to: usize,
    /// Why it exists.
    pub kind: EdgeKind,
}

/// A flow as a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Its nodes, by layer and place.
    pub nodes: Vec<Node>,
    /// Its edges.
    pub edges: Vec<Edge>,
    /// How many layers it has.
    pub layers: usize,
    /// Whether nodes stand for several tasks.
    pub collapsed: bool,
    /// How many tasks are in no node, because there are too many layers.
    pub left_out: usize,
    /// How many edges are not drawn.
    pub edges_left_out: usize,
    /// Dependencies on tasks that are not among the tasks of the flow.
    pub outside: usize,
}

impl Graph {
    /// Returns the graph of a flow.
    #[must_use]
    pub fn of(flow: &FlowDetails) -> Self {
        let (edges, outside) = task_edges(flow);
        let number = flow.tasks.len();
        let mut collapsed = false;
        let mut group: Vec<usize> = (0..number).collect();
        let mut groups = number;
        if groups > NODES_MAX {
            let siblings = by_siblings(flow, &edges);
            let mut names: Vec<_> = siblings.clone();
            names.sort_unstable();
            names.dedup();
            if names.len() > NODES_MAX {
                let layers = layers(number, &edges);
                let key = |at: usize| (layers[at], flow.tasks[at].row.class.as_str());
                (group, groups) = grouped(number, key);
            } else {
                (group, groups) = grouped(number, |at| siblings[at]);
            }
            collapsed = groups < number;
        }
        let mut graph = Self::of_groups(flow, &group, groups, &edges);
        graph.collapsed = collapsed;
        graph.outside = outside;
        graph.cut();
        graph.place();
        graph
    }

    fn of_groups(
        flow: &FlowDetails,
        group: &[usize],
        groups: usize,
        edges: &BTreeSet<(usize, usize, EdgeKind)>,
    ) -> Self {
        let between: BTreeSet<(usize, usize, EdgeKind)> = edges
            .iter()
            .map(|(from, to, kind)| (group[*from], group[*to], *kind))
            .filter(|(from, to, _)| from != to)
            .collect();
        let layer = layers(groups, &between);
        let mut tasks = vec![Vec::new(); groups];
        let mut counts = vec![FlowCounts::default(); groups];
        for (at, task) in flow.tasks.iter().enumerate() {
            tasks[group[at]].push(at);
            add(&mut counts[group[at]], task);
        }
        let nodes = tasks.into_iter().zip(counts).zip(&layer).map(|((tasks, counts), layer)| {
            let state = NodeState::of(&counts);
            Node { tasks, layer: *layer, place: 0, counts, state }
        });
        Self {
            nodes: nodes.collect(),
            edges: between.into_iter().map(|(from, to, kind)| Edge { from, to, kind }).collect(),
            layers: layer.iter().max().map_or(0, |last| last + 1),
            collapsed: false,
            left_out: 0,
            edges_left_out: 0,
            outside: 0,
        }
    }

    /// Keeps as many layers as can be drawn, from the one before the first open or failed
    /// task on.
    fn cut(&mut self) {
        if self.nodes.len() <= NODES_MAX {
            return;
        }
        let mut width = vec![0; self.layers];
        for node in &self.nodes {
            width[node.layer] += 1;
        }
        let unfinished = |node: &&Node| node.state != NodeState::Is(TaskStatus::Stopped);
        let first = self.nodes.iter().filter(unfinished).map(|node| node.layer).min().unwrap_or(0);
        let mut first = first.saturating_sub(1);
        let mut end = first;
        let mut kept = 0;
        while end < self.layers && (kept == 0 || kept + width[end] <= NODES_MAX) {
            kept += width[end];
            end += 1;
        }
        while first > 0 && kept + width[first - 1] <= NODES_MAX {
            first -= 1;
            kept += width[first];
        }
        let mut places = vec![None; self.nodes.len()];
        let mut nodes = Vec::with_capacity(kept.min(NODES_MAX));
        for (old, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            // One layer alone may have too many classes.
            if (first..end).contains(&node.layer) && nodes.len() < NODES_MAX {
                places[old] = Some(nodes.len());
                node.layer -= first;
                nodes.push(node);
            } else {
                self.left_out += node.tasks.len();
            }
        }
        self.nodes = nodes;
        self.layers = end - first;
        let edges = std::mem::take(&mut self.edges);
        let kept = edges.into_iter().filter_map(|edge| {
            Some(Edge { from: places[edge.from]?, to: places[edge.to]?, kind: edge.kind })
        });
        self.edges = kept.collect();
    }

    /// Orders each layer by the places of the nodes before it, so that few edges cross.
    fn place(&mut self) {
        let mut parents = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            parents[edge.to].push(edge.from);
        }
        let mut by_layer = vec![Vec::new(); self.layers];
        for (at, node) in self.nodes.iter().enumerate() {
            by_layer[node.layer].push(at);
        }
        for layer in by_layer {
            let mut keyed: Vec<(usize, usize)> = layer
                .into_iter()
                .map(|at| {
                    let places = parents[at].iter().map(|parent| self.nodes[*parent].place * 1_000);
                    let number = parents[at].len().max(1);
                    (places.sum::<usize>() / number, at)
                })
                .collect();
            keyed.sort_unstable();
            for (place, (_, at)) in keyed.into_iter().enumerate() {
                self.nodes[at].place = place;
            }
        }
        self.edges_left_out = self.edges.len().saturating_sub(EDGES_MAX);
        self.edges.truncate(EDGES_MAX);
    }

    /// Returns the height of its highest layer, in nodes.
    #[must_use]
    pub fn height(&self) -> usize {
        self.nodes.iter().map(|node| node.place + 1).max().unwrap_or(0)
    }
}

/// The edges between the tasks of a flow, and how many lead to tasks outside of it.
fn task_edges(flow: &FlowDetails) -> (BTreeSet<(usize, usize, EdgeKind)>, usize) {
    let places: HashMap<TaskId, usize> =
        flow.tasks.iter().enumerate().map(|(at, task)| (task.row.id, at)).collect();
    let mut edges = BTreeSet::new();
    let mut outside = 0;
    let mut depends = vec![false; flow.tasks.len()];
    for row in &flow.dependencies {
        match (places.get(&row.depends_on), places.get(&row.task_id)) {
            (Some(from), Some(to)) => {
                depends[*to] = true;
                edges.insert((*from, *to, row.condition.into()));
            }
            (None, Some(_)) => outside += 1,
            _ => {}
        }
    }
    for (at, task) in flow.tasks.iter().enumerate() {
        // SQL of users may set any parent; one that is not older would make a cycle.
        let parent = task.parent_id.filter(|parent| *parent < task.row.id);
        if let Some(parent) = parent.and_then(|id| places.get(&id)).filter(|_| !depends[at]) {
            edges.insert((*parent, at, EdgeKind::Created));
        }
    }
    (edges, outside)
}

/// The layer of each node: the length of the longest path to it.
fn layers(number: usize, edges: &BTreeSet<(usize, usize, EdgeKind)>) -> Vec<usize> {
    let mut open = vec![0_usize; number];
    let mut next = vec![Vec::new(); number];
    for (from, to, _) in edges {
        open[*to] += 1;
        next[*from].push(*to);
    }
    let mut layer = vec![0; number];
    let mut ready: VecDeque<usize> = (0..number).filter(|at| open[*at] == 0).collect();
    while let Some(at) = ready.pop_front() {
        for to in &next[at] {
            layer[*to] = layer[*to].max(layer[at] + 1);
            open[*to] -= 1;
            if open[*to] == 0 {
                ready.push_back(*to);
            }
        }
    }
    layer
}

/// The same number for tasks of one class with the same parents and children.
fn by_siblings(flow: &FlowDetails, edges: &BTreeSet<(usize, usize, EdgeKind)>) -> Vec<usize> {
    let number = flow.tasks.len();
    let (mut parents, mut children) = (vec![Vec::new(); number], vec![Vec::new(); number]);
    for (from, to, kind) in edges {
        parents[*to].push((*from, *kind));
        children[*from].push((*to, *kind));
    }
    let mut known = HashMap::new();
    (0..number)
        .map(|at| {
            let next = known.len();
            let class = flow.tasks[at].row.class.as_str();
            let own = (std::mem::take(&mut parents[at]), std::mem::take(&mut children[at]));
            *known.entry((class, own)).or_insert(next)
        })
        .collect()
}

/// Numbers groups of equal keys in the order in which they come.
fn grouped<K: Ord>(number: usize, key: impl Fn(usize) -> K) -> (Vec<usize>, usize) {
    let mut known = BTreeMap::new();
    let mut groups = Vec::with_capacity(number);
    for at in 0..number {
        let next = known.len();
        groups.push(*known.entry(key(at)).or_insert(next));
    }
    (groups, known.len())
}

#[cfg(test)]
mod tests;
