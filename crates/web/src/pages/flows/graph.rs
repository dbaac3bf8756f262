//! A flow as a drawing and as a table. The drawing is made on the server: layers from left to
//! right, each node a link.

use maud::{Markup, html};

use jiff::Timestamp;
use task_engine_core::dependency::{DependencyCondition, DependencyRow};
use task_engine_core::display::count;
use task_engine_core::flow::FlowTask;
use task_engine_core::task::TaskStatus;
use task_engine_operations::flows::FlowDetails;
use task_engine_operations::flows::graph::{Edge, EdgeKind, Graph, Node, NodeState};

use super::one::filter_of;
use crate::app::App;
use crate::pages::tasks::address;
use crate::parts;
use crate::parts::Heading::{Number, Text};

const WIDTH: usize = 176;
const HEIGHT: usize = 46;
const GAP_X: usize = 64;
const GAP_Y: usize = 16;
const MARGIN: usize = 14;
/// Longer names are cut; the title has them whole.
const CHARS_MAX: usize = 17;
const SECOND_CHARS_MAX: usize = 23;
/// With more edges, conditions are shown by the lines only.
const LABELLED_EDGES_MAX: usize = 60;
/// Names of dependencies in a row of the table.
const NAMES_SHOWN: usize = 5;

pub(super) fn show(app: &App, flow: &FlowDetails, graph: &Graph) -> Markup {
    let width = MARGIN * 2 + graph.layers * (WIDTH + GAP_X) - GAP_X.min(graph.layers * GAP_X);
    let height = MARGIN * 2 + graph.height() * (HEIGHT + GAP_Y) - GAP_Y;
    let about = format!(
        "The {} of the flow in {}; the table below has the same as text",
        count(graph.nodes.len(), "node"),
        count(graph.layers, "layer")
    );
    html! {
        div .scroll .graph tabindex="0" role="group" aria-label=(about) {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } {
                defs {
                    marker #arrow viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                        path .arrow d="M0 0L8 4L0 8z" {}
                    }
                }
                @for edge in &graph.edges { (line(graph, edge)) }
                @if graph.edges.len() <= LABELLED_EDGES_MAX {
                    @for edge in &graph.edges { (label(graph, edge)) }
                }
                @for node in &graph.nodes { (drawn(app, flow, node)) }
            }
        }
        (legend(graph))
        (notes(app, flow, graph))
    }
}

fn x(node: &Node) -> usize {
    MARGIN + node.layer * (WIDTH + GAP_X)
}

fn y(node: &Node) -> usize {
    MARGIN + node.place * (HEIGHT + GAP_Y)
}

fn class_of(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Success => "success",
        EdgeKind::End => "end",
        EdgeKind::Failure => "failure",
        EdgeKind::Created => "created",
    }
}

fn line(graph: &Graph, edge: &Edge) -> Markup {
    let (from, to) = (&graph.nodes[edge.from], &graph.nodes[edge.to]);
    let (x1, y1) = (x(from) + WIDTH, y(from) + HEIGHT / 2);
    let (x2, y2) = (x(to), y(to) + HEIGHT / 2);
    let bend = GAP_X / 2;
    let path = format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend));
    html! {
        path .edge .(class_of(edge.kind)) d=(path) marker-end="url(#arrow)" aria-hidden="true" {}
    }
}

/// The condition of an edge, near its end; none for the usual one.
fn label(graph: &Graph, edge: &Edge) -> Markup {
    let text = match edge.kind {
        EdgeKind::End => "end",
        EdgeKind::Failure => "failure",
        EdgeKind::Success | EdgeKind::Created => return html! {},
    };
    let to = &graph.nodes[edge.to];
    let x = x(to).saturating_sub(GAP_X / 2);
    let from = y(&graph.nodes[edge.from]);
    let at = (from + y(to) * 3) / 4 + HEIGHT / 2 - 4;
    html! { text .on-edge .(class_of(edge.kind)) x=(x) y=(at) aria-hidden="true" { (text) } }
}

fn drawn(app: &App, flow: &FlowDetails, node: &Node) -> Markup {
    let NodeText { first, second, whole } = NodeText::of(flow, node);
    let (x, y) = (x(node), y(node));
    let state = node.state.as_str();
    let key = flow.tasks[node.tasks[0]].row.id;
    let icon = format!("translate({} {})", x + 10, y + (HEIGHT - 16) / 2);
    html! {
        a .node .(state) href=(link(app, flow, node)) aria-label=(whole) data-key={ "node-" (key) } {
            title { (whole) }
            @if node.tasks.len() > 1 { rect .many x=(x + 4) y=(y + 4) width=(WIDTH) height=(HEIGHT) rx="7" {} }
            rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="7" {}
            path .icon d=(parts::icon_path(state)) transform=(icon) {}
            text x=(x + 34) y=(y + 20) { (first) }
            text .second x=(x + 34) y=(y + 36) { (second) }
        }
    }
}

/// What is written into a node.
struct NodeText {
    first: String,
    second: String,
    /// For the title, and for screen readers.
    whole: String,
}

impl NodeText {
    fn of(flow: &FlowDetails, node: &Node) -> Self {
        let first = &flow.tasks[node.tasks[0]];
        let class = first.row.class.as_str();
        if node.tasks.len() > 1 {
            let states = states(node);
            return Self {
                first: cut(&format!("{} × {class}", node.tasks.len()), CHARS_MAX),
                second: cut(&states, SECOND_CHARS_MAX),
                whole: format!("{} tasks of class {class}: {states}", node.tasks.len()),
            };
        }
        let name = first.name.as_deref().unwrap_or(class);
        let second = if name == class {
            format!("#{}", first.row.id)
        } else {
            format!("{} #{}", cut(class, CHARS_MAX), first.row.id)
        };
        let error = match (&first.row.error, node.state) {
            (Some(error), NodeState::Is(TaskStatus::Failed | TaskStatus::Cancelled)) => {
                format!(": {}", cut(&error.to_string(), 200))
            }
            _ => String::new(),
        };
        Self {
            first: cut(name, CHARS_MAX),
            second,
            whole: format!(
                "{name}, task {} of class {class}, {}{error}",
                first.row.id,
                node.state.as_str()
            ),
        }
    }
}

/// `1 failed, 9997 waiting`.
fn states(node: &Node) -> String {
    let counts = &node.counts;
    let parts = [
        (counts.failed, "failed"),
        (counts.running, "running"),
        (counts.waiting, "waiting"),
        (counts.blocked, "blocked"),
        (counts.cancelled, "cancelled"),
        (counts.not_needed, "not needed"),
        (counts.stopped, "stopped"),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, state)| format!("{number} {state}")).collect::<Vec<_>>().join(", ")
}

fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let head: String = text.chars().take(max - 1).collect();
    format!("{}…", head.trim_end())
}

/// The task, or the list of the tasks of this class.
fn link(app: &App, flow: &FlowDetails, node: &Node) -> String {
    let first = &flow.tasks[node.tasks[0]].row;
    if node.tasks.len() == 1 {
        return app.path(&format!("/tasks/{}", first.id));
    }
    let filter = filter_of(flow).and_class(first.class.as_str());
    address(app, &filter.to_string(), None)
}

fn legend(graph: &Graph) -> Markup {
    let has = |kind| graph.edges.iter().any(|edge| edge.kind == kind);
    let kinds = [
        (EdgeKind::Success, "after success"),
        (EdgeKind::End, "after the end"),
        (EdgeKind::Failure, "after a failure"),
        (EdgeKind::Created, "created by"),
    ];
    html! {
        p .legend {
            @for (kind, text) in kinds {
                @if has(kind) {
                    span {
                        svg viewBox="0 0 32 10" aria-hidden="true" { path .edge .(class_of(kind)) d="M0 5H32" {} }
                        (text)
                    }
                }
            }
        }
    }
}

fn notes(app: &App, flow: &FlowDetails, graph: &Graph) -> Markup {
    html! {
        @if graph.collapsed {
            p .fine { "Tasks of one class are drawn as one node, because the flow has "
                (count(flow.tasks.len(), "task")) "." }
        }
        @if graph.left_out > 0 {
            p .fine { (count(graph.left_out, "task")) " before and after these layers "
                @if graph.left_out == 1 { "is" } @else { "are" } " not drawn. "
                a href=(address(app, &filter_of(flow).to_string(), None)) { "List all tasks" } }
        }
        @if graph.edges_left_out > 0 {
            p .fine { (count(graph.edges_left_out, "dependency")) " not drawn." }
        }
        @if graph.outside > 0 {
            p .fine { "Tasks outside of the flow: " (count(graph.outside, "dependency")) "." }
        }
    }
}

/// The nodes as a table: for screen readers, and for narrow windows.
pub(super) fn table(app: &App, flow: &FlowDetails, graph: &Graph, now: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Number("Task"), Text("Name"), Text("Class"), Text("State"), Text("After"), Text("Changed"),
        ], &html! { @for node in &graph.nodes { (row(app, flow, node, now)) } }))
    }
}

fn row(app: &App, flow: &FlowDetails, node: &Node, now: Timestamp) -> Markup {
    let first = &flow.tasks[node.tasks[0]];
    let one = node.tasks.len() == 1;
    let state = node.state.as_str();
    html! {
        tr data-key=(first.row.id) {
            td .number {
                a href=(link(app, flow, node)) {
                    @if one { (first.row.id) } @else { (node.tasks.len()) " tasks" }
                }
            }
            td .name data-label="name" {
                @match first.name.as_ref().filter(|_| one) { Some(name) => (name), None => "–" }
            }
            td .name data-label="class" { (first.row.class) }
            td { @if one { (parts::state(state, state)) } @else { (parts::state(state, &states(node))) } }
            td data-label="after" { @if one { (after(flow, first)) } @else { "–" } }
            td .nowrap data-label="changed" { (parts::time(app, first.row.updated_at, now)) }
        }
    }
}

/// `extract, load; end of 17`.
fn after(flow: &FlowDetails, task: &FlowTask) -> String {
    let begin = flow.dependencies.partition_point(|row| row.task_id < task.row.id);
    let own = flow.dependencies[begin..].iter().take_while(|row| row.task_id == task.row.id);
    let own: Vec<&DependencyRow> = own.collect();
    let name = |row: &&&DependencyRow| match &row.name {
        Some(name) => cut(name, 40),
        None => row.depends_on.to_string(),
    };
    let mut parts = Vec::new();
    for condition in DependencyCondition::ALL {
        let all: Vec<_> = own.iter().filter(|row| row.condition == condition).collect();
        if all.is_empty() {
            continue;
        }
        let names: Vec<_> = all.iter().take(NAMES_SHOWN).map(&name).collect();
        let more = match all.len().saturating_sub(NAMES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let words = match condition {
            DependencyCondition::End => "end of ",
            DependencyCondition::Failure => "failure of ",
            _ => "",
        };
        parts.push(format!("{words}{}{more}", names.join(", ")));
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join("; ") }
}
