//! Limits in the file: of a class, of a queue (`[queue.NAME]`), and those that tasks name
//! (`[limit.NAME]`).

use std::ops::Range;

use task_engine::limit::{ClassLimit, LIMITS_MAX, Limit, LimitOptions, LimitTarget, Rate};
use toml::Spanned;

use super::Checker;
use super::file::{
    ClassTable, ConfigText, LimitTable, LimitValue, NamedLimitTable, OrderValue, QueueTable,
    RateTable, RateValue, Tables,
};

/// A limit without its target, and its place in the file.
struct PlacedLimit {
    place: Range<usize>,
    name: Option<String>,
    options: LimitOptions,
}

/// The limits of a file so far, so that no name is used twice.
#[derive(Default)]
pub(super) struct FileLimits(Vec<Limit>);

impl Checker<'_> {
    /// The limits of a class.
    pub(super) fn class_limits(
        &mut self,
        class: &str,
        table: &ClassTable,
        secret: &[String],
        all: &mut FileLimits,
    ) -> Vec<ClassLimit> {
        let mut placed = self.keys(
            table.limit.as_ref(),
            table.rate.as_ref(),
            table.in_order.as_ref(),
            table.fair.as_ref(),
        );
        for named in table.limits.iter().flatten() {
            placed.extend(self.named(named));
        }
        let target = LimitTarget::Class(class.to_owned());
        let mut limits = Vec::new();
        for PlacedLimit { place, name, options } in placed {
            if options.has_secret_key(secret) {
                let key = options.key.as_deref().unwrap_or_default();
                let message = format!(
                    "the key {key:?} is a secret parameter, and keys are visible; use another parameter"
                );
                self.error(place.clone(), message);
            }
            let full_name = name.clone().unwrap_or_else(|| options.name_for(class));
            self.add(
                all,
                place,
                Limit { name: full_name, target: target.clone(), options: options.clone() },
            );
            limits.push(ClassLimit { name, options });
        }
        limits
    }

    /// The limits of queues, and those that tasks name.
    pub(super) fn other_limits(
        &mut self,
        queues: &Tables<QueueTable>,
        named: &Tables<LimitTable>,
        all: &mut FileLimits,
    ) -> Vec<Limit> {
        let begin = all.0.len();
        for (queue, table) in queues {
            self.check_queue(queue.get_ref(), queue.span());
            let placed = self.keys(
                table.limit.as_ref(),
                table.rate.as_ref(),
                table.in_order.as_ref(),
                table.fair.as_ref(),
            );
            if placed.is_empty() {
                let message = format!(
                    "queue {} has no limit; write limit = 5 or rate = \"100/1s\"",
                    queue.get_ref()
                );
                self.error(queue.span(), message);
            }
            for PlacedLimit { place, options, .. } in placed {
                let name = options.name_for(&format!("queue.{}", queue.get_ref()));
                let target = LimitTarget::Queue(queue.get_ref().clone());
                self.add(all, place, Limit { name, target, options });
            }
        }
        for (name, table) in named {
            let options = self.options(table);
            let limit = Limit { name: name.get_ref().clone(), target: LimitTarget::Named, options };
            self.add(all, name.span(), limit);
        }
        all.0.split_off(begin.min(all.0.len()))
    }

    /// The limits of the keys that classes and queues have in common.
    fn keys(
        &mut self,
        limit: Option<&Spanned<LimitValue>>,
        rate: Option<&Spanned<RateValue>>,
        in_order: Option<&Spanned<OrderValue>>,
        fair: Option<&Spanned<ConfigText>>,
    ) -> Vec<PlacedLimit> {
        let mut placed = Vec::new();
        let mut add = |place, options| placed.push(PlacedLimit { place, name: None, options });
        if let Some(limit) = limit {
            let options = match limit.get_ref() {
                LimitValue::Max(max) => LimitOptions::max(u32_of(max.0)),
                LimitValue::Table(table) => self.options(table),
            };
            add(limit.span(), options);
        }
        if let Some(rate) = rate {
            let mut options = LimitOptions::rate(rate.get_ref().rate());
            options.key = rate.get_ref().key();
            add(rate.span(), options);
        }
        match in_order.map(|order| (order.span(), order.get_ref())) {
            Some((place, OrderValue::InOrder(true))) => add(place, LimitOptions::in_order()),
            Some((place, OrderValue::Table(table))) => {
                let key = table.key.as_ref().map(|key| key.get_ref().to_string());
                let mut options = LimitOptions::in_order();
                options.key = key;
                add(place, options);
            }
            Some((_, OrderValue::InOrder(false))) | None => {}
        }
        if let Some(fair) = fair {
            add(fair.span(), LimitOptions::fair(&**fair.get_ref()));
        }
        placed
    }

    fn named(&mut self, named: &Spanned<NamedLimitTable>) -> Option<PlacedLimit> {
        let NamedLimitTable { name, limit } = named.get_ref();
        let Some(name) = name else {
            self.error(named.span(), "a limit of this list needs a name; write name = \"NAME\"");
            return None;
        };
        let options = self.options(limit);
        Some(PlacedLimit { place: named.span(), name: Some(name.get_ref().to_string()), options })
    }

    fn options(&mut self, table: &LimitTable) -> LimitOptions {
        let mut options = LimitOptions::default();
        options.max = table.max.map(|max| u32_of(max.0));
        options.key = table.key.as_ref().map(|key| key.get_ref().to_string());
        options.in_order = table.in_order.unwrap_or_default();
        options.weights =
            table.weights.iter().map(|(key, weight)| (key.clone(), *weight)).collect();
        if let Some(rate) = &table.rate {
            options.rate = Some(rate.get_ref().rate());
            if rate.get_ref().key().is_some() {
                self.error(rate.span(), "the key belongs to the limit, beside rate");
            }
        }
        options
    }

    fn check_queue(&mut self, queue: &str, place: Range<usize>) {
        if let Err(error) = task_engine_core::queue::check_queue_name(queue) {
            self.error(place, error.to_string());
        }
    }

    fn add(&mut self, all: &mut FileLimits, place: Range<usize>, limit: Limit) {
        if let Err(error) = limit.check() {
            self.error(place.clone(), error.to_string());
        }
        if all.0.iter().any(|other| other.name == limit.name) {
            let message =
                format!("limit {:?} is in this file twice; give it another name", limit.name);
            self.error(place.clone(), message);
        }
        let same_target = all.0.iter().filter(|other| other.target == limit.target).count();
        if limit.target != LimitTarget::Named && same_target == LIMITS_MAX {
            let message = format!("a class or queue has at most {LIMITS_MAX} limits");
            self.error(place, message);
        }
        all.0.push(limit);
    }
}

impl RateValue {
    fn rate(&self) -> Rate {
        match self {
            Self::Text(rate) => *rate,
            Self::Table(RateTable { max, per, even, .. }) => {
                let rate = Rate::new(u32_of(max.0), per.0);
                if even.unwrap_or_default() { rate.even() } else { rate }
            }
        }
    }

    fn key(&self) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Table(table) => table.key.as_ref().map(|key| key.get_ref().to_string()),
        }
    }
}

/// The number is bounded already.
fn u32_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
