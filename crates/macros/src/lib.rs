//! The derive macro of Task Engine, which makes a type a task class.
//!
//! **Applications do not add this crate**: [`task-engine`] exports the macro beside the trait,
//! so that `use task_engine::Task;` brings both.
//!
//! [`task-engine`]: https://docs.rs/task-engine

// - `attributes`: reads `#[task(…)]`; `key`, `duration`, `suggest`: its parts;
// - `expand`: checks them against the type, and writes the implementation.
mod attributes;
mod duration;
mod expand;
mod key;
mod suggest;

use proc_macro::TokenStream;

/// Makes a struct or an enum a task class, whose fields are the parameters that are stored.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use task_engine_macros::Task;
/// use serde::{Deserialize, Serialize};
/// # /*
/// use task_engine::Task;
/// # */
/// # use task_engine::Task as _;
///
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(queue = "mail", retries = 5, backoff = "30s..1h", timeout = "30s", unique = "order {order}")]
/// struct SendReceipt {
///     order: u64,
/// }
///
/// assert_eq!(SendReceipt::CLASS, "send_receipt");
/// assert_eq!(SendReceipt::options().queue, "mail");
/// assert_eq!(SendReceipt { order: 7 }.unique().unwrap().key, "order 7");
/// ```
///
/// `#[task(…)]` and all its attributes are optional. A wrong one is a compile error.
///
/// | attribute | meaning | default |
/// |---|---|---|
/// | `class = "send_receipt"` | the stored name of the class, which selects its handler. Set it before you rename a type whose tasks are stored | the name of the type in `snake_case` |
/// | `queue = "mail"` | the queue of new tasks | `"default"` |
/// | `priority = 5` | the priority of new tasks: higher runs first | `0` |
/// | `retries = 5` | how often a failed task is retried; `0`: never | `10` |
/// | `backoff = "30s"` | the same wait before every retry | |
/// | `backoff = "30s..1h"` | waits that double from the first to the longest; `"30s.."` has no longest | `"1m.."` |
/// | `jitter = 0.2` | the part of each wait that is random, from 0 to 1 | `0` |
/// | `restart_after_progress = false` | counts the retries of all attempts; by default they are counted anew after an attempt that recorded a step of a durable task | `true` |
/// | `retry = RetryRule::times(5).factor(3.0)` | the whole retry rule, by any expression; replaces the four above | |
/// | `timeout = "30s"` | how long an attempt may run | no limit |
/// | `cancel_grace = "2s"` | how long cancelled code may take to end by itself | `"1s"` |
/// | `unique = "order {order}"` | the key of a unique task, a format string over the fields: `{order}`, `{customer.id}`, `{0}`, `{size:?}` | not unique |
/// | `unique` | all parameters are the key, as JSON of at most 500 bytes | |
/// | `unique(key = "…", scope = "waiting", on_conflict = "replace")` | `scope`: which task conflicts: `"waiting"`, `"active"`, or one created within a duration like `"1h"`. `on_conflict`: `"keep"`, `"replace"`, `"replace_parameters"` or `"replace_time"`. Without `key`, all parameters are the key | `"active"`, `"keep"` |
/// | `limit = 2` | how many run at a time, over all engines | no limit |
/// | `rate = "100/1s"` | how many start in any window of this length | no limit |
/// | `in_order` | one at a time, in the order of time and id; a task that failed and waits for its retry blocks the others | not in order |
/// | `key = "customer"` | the field whose value is the key of `limit = …`, `rate = …` and `in_order`: they apply to each value separately | one limit for all tasks |
/// | `limit(max = 2, key = "customer")`, `rate(max = 100, per = "1s", key = "customer", even)`, `in_order(key = "account")` | the same, each with its own key or none; `even` spreads the starts evenly | |
/// | `fair = "tenant"` | equal shares of the workers for each value of this field | first come, first served |
/// | `secrets("password", "card.number")` | paths of parameters that only the task's code may see, with their names in JSON | none |
/// | `crate = my_crate::task_engine` | the path of the crate, if your crate gets it from another one | `::task_engine` |
///
/// Durations are numbers with units, the largest first: `"250ms"`, `"5s"`, `"10m"`,
/// `"1h30m"`, `"2 days"`.
///
/// The type also needs `Serialize` and `Deserialize`. It cannot be generic, because a class
/// has one name. Implement the trait by hand for anything else.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use task_engine_macros::Task;
/// # use serde::{Deserialize, Serialize};
/// # use task_engine::Task as _;
/// // At most one waiting task for each customer. A new one replaces its parameters.
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(unique(key = "{customer}", scope = "waiting", on_conflict = "replace_parameters"))]
/// struct Index { customer: u64, fields: Vec<String> }
///
/// // Each variant is an object in JSON, like {"Png": {"width": 640}}.
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(class = "render", timeout = "5m")]
/// enum Render {
///     Png { width: u32 },
///     Pdf { pages: u32 },
/// }
/// # assert_eq!(Index::CLASS, "index");
/// # assert_eq!(Render::CLASS, "render");
/// ```
#[proc_macro_derive(Task, attributes(task))]
pub fn derive_task(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).into()
}
