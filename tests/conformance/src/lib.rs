//! One suite of behaviour that every store passes, and the PostgreSQL server
//! that tests run on.
//!
//! ```text
//! async fn fresh() -> Box<dyn Database> {
//!     Box::new(AnEmptyDatabase::somewhere().await)
//! }
//!
//! // One test for each promise, each with a database of its own.
//! task_engine_conformance::suite!(fresh);
//! ```
//!
//! # Map
//! - [`creation`], [`claims`], [`records`], [`races`], [`recovery`],
//!   [`operations`], [`instances`], [`listing`], [`wake_ups`], [`hostile`],
//!   [`properties`], [`queues`], [`reports`], [`cancellations`],
//!   [`mod@unique`], [`flows`], [`schedules`], [`schedule_events`], [`watching`],
//!   [`checks`], [`exports`], [`searches`], [`audits`], [`tokens`], [`logins`],
//!   [`figures`], [`completions`]: the cases, by promise;
//! - [`everything`]: a store with all that can be in one;
//! - [`mod@bench`], [`waiting`]: the words they are written in;
//! - [`postgres_server`]: a server that lives as long as its tests; [`pooler`]: a
//!   pgbouncer before it.

pub mod audits;
pub mod bench;
pub mod cancellations;
pub mod checks;
pub mod claims;
pub mod completions;
pub mod creation;
pub mod everything;
pub mod exports;
pub mod figures;
pub mod flows;
pub mod hostile;
pub mod instances;
pub mod listing;
pub mod logins;
pub mod operations;
pub mod pooler;
pub mod postgres_server;
pub mod properties;
pub mod queues;
pub mod races;
pub mod records;
pub mod recovery;
pub mod reports;
pub mod schedule_events;
pub mod schedules;
pub mod searches;
pub mod seeking;
pub mod snoozes;
pub mod tokens;
pub mod unique;
pub mod waiting;
pub mod wake_ups;
pub mod watching;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;

use crate::completions::{Local, Transaction};

pub use pooler::TestPooler;
pub use postgres_server::{Plan, TestServer};

/// One empty database, removed when this is dropped or the process ends.
pub trait Database: Send + Sync {
    /// A new handle on it, as another process would have, with its tables.
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>>;

    /// A transaction of an application's own, on a connection of its own.
    fn begin(&self) -> Local<'_, Box<dyn Transaction>>;

    /// What such transactions have left, in order: [`Transaction::effect`].
    fn effects(&self) -> Local<'_, Vec<TaskId>>;

    /// Whether a store is told what others do. If not, it looks for work by a
    /// clock, and the rest waits for a heartbeat.
    fn is_told(&self) -> bool {
        true
    }
}

/// A case that has not ended by then hangs.
const CASE_LIMIT: Duration = Duration::from_secs(240);

/// Runs one case, and then checks the invariants, also of a case that failed:
/// what it has broken is often why.
pub async fn run(db: Box<dyn Database>, case: impl AsyncFnOnce(&dyn Database)) {
    let case = AssertUnwindSafe(tokio::time::timeout(CASE_LIMIT, case(&*db)));
    let outcome = case.catch_unwind().await;
    let verified = tokio::time::timeout(CASE_LIMIT, async { db.open().await.verify().await }).await;
    let complaint = match verified {
        Err(_) => Some("verify hangs".to_owned()),
        Ok(Err(error)) => Some(format!("verify fails: {error}")),
        Ok(Ok(violations)) if violations.is_empty() => None,
        Ok(Ok(violations)) => Some(format!("invariants broken:\n{}", violations.join("\n"))),
    };
    judge(outcome, complaint.as_deref());
}

/// The case's own panic goes first; the complaint is printed in any case.
fn judge<E>(outcome: Result<Result<(), E>, Box<dyn Any + Send>>, complaint: Option<&str>) {
    if let Some(complaint) = complaint {
        eprintln!("{complaint}");
    }
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(Err(_)) => panic!("the case has not ended within {CASE_LIMIT:?}"),
        Ok(Ok(())) => assert_eq!(complaint, None),
    }
}

/// Makes one test of each case. The argument is an async function without
/// arguments that returns a `Box<dyn Database>`.
#[macro_export]
macro_rules! suite {
    ($database:path) => {
        $crate::__cases! {
            $database;
            creation {
                a_task_waits_as_it_was_asked_for
                many_tasks_keep_their_order
                a_hundred_thousand_tasks_in_one_call
                no_tasks_are_fine
                all_tasks_of_a_call_or_none
                creation_is_whole_when_its_caller_goes_away
                a_task_is_due_after_a_wait_or_at_a_time
                creators_do_not_disturb_each_other
                a_time_beyond_the_calendar_is_refused
            }
            claims {
                a_claim_brings_all_that_is_needed
                a_claim_takes_no_more_than_asked
                each_task_is_claimed_once_by_many_claimers
                the_order_is_priority_then_time_then_id
                only_the_classes_and_queues_asked_for
                a_crowd_that_cannot_run_hides_nobody
                a_future_task_is_left_until_its_time
                a_scheduled_task_is_had_on_time
                late_comers_that_sort_first_are_found
                a_claim_whose_answer_is_lost_is_found_again
            }
            completions {
                a_commit_completes_a_task
                without_a_commit_nothing_has_happened
                a_completion_survives_its_engine
                what_was_taken_back_is_never_completed
                recovery_goes_round_an_open_transaction
                an_open_transaction_is_not_settled
                a_completion_wins_over_a_wish_to_cancel
                a_completion_frees_a_key_as_a_record_does
            }
            records {
                a_success_is_on_record
                a_failure_is_on_record
                a_retry_waits_for_its_time
                attempts_grow_and_retry_numbers_are_as_given
                giving_back_costs_an_attempt_and_no_retry
                a_batch_sent_again_changes_nothing
                a_large_batch_in_any_order
                only_what_is_late_is_late
                finished_claims_are_removed
                of_a_claim_only_the_unended_runs
                an_engine_that_is_lost_may_still_record_first
            }
            snoozes {
                snooze_keeps_the_retry_number
                snoozed_task_runs_again
                snoozed_task_can_be_cancelled
                snooze_is_no_error
            }
            races {
                an_end_raced_by_recovery_has_one_winner
                two_recoveries_take_each_attempt_once
                a_claim_of_a_dying_engine_is_found
                a_heartbeat_raced_by_a_loss_tells_the_truth
                a_cancel_raced_by_a_claim_has_one_winner
                a_cancel_raced_by_an_end_is_answered_truly
                two_cancels_cancel_once
                two_retries_and_a_claim_make_one_attempt
                a_prune_raced_by_a_retry_leaves_no_halves
                one_of_many_gets_the_name
                the_invariants_hold_while_work_goes_on
            }
            recovery {
                a_crash_is_on_record
                the_rule_of_the_class_decides
                the_rule_of_the_task_goes_first
                a_nonsense_rule_stops_no_recovery
                a_crash_counts_like_a_failure
                a_late_result_is_evidence
                nothing_is_taken_from_the_living
                what_a_stopped_engine_left_is_taken_back
                unknown_claims_go_back_at_no_cost
                a_pending_cancel_is_granted_by_recovery
                there_is_nothing_to_take_from_nobody
            }
            operations {
                cancelling_what_waits
                cancelling_what_runs
                a_wish_that_meets_a_retry_cancels_the_task
                a_granted_wish_does_not_undo_a_retry
                cancelling_what_has_ended_or_never_was
                the_same_task_twice_in_one_call
                retrying_what_failed_or_was_cancelled
                an_operators_retry_starts_over
                retrying_what_waits
                retrying_what_cannot_be
                retention_removes_what_it_was_asked_to
                retention_goes_by_age_and_in_steps
                retention_under_an_open_claim
            }
            instances {
                an_engine_is_known_as_it_said
                gone_process_is_told_at_once
                a_name_has_one_life_at_a_time
                a_heartbeat_renews_and_tells
                an_expired_lease_is_seen_and_mended
                only_the_dead_are_declared_lost
                the_dead_claim_nothing
                what_an_engine_holds_is_listed
                lives_are_listed_newest_first
                a_heartbeat_names_the_classes_that_wait
                lives_of_long_ago_are_left_out_and_removed
                lives_that_much_history_may_name_stay
            }
            listing {
                tasks_are_found_by_status_and_class
                a_row_is_the_same_everywhere
                pages_follow_each_other
                a_task_that_never_was_is_not_found
                a_store_says_where_it_is
            }
            wake_ups {
                listening_begins_with_a_call
                creation_wakes
                creation_by_another_handle_wakes
                a_scheduled_task_wakes
                a_retry_wakes
                a_wish_to_cancel_wakes
                there_is_no_gap_before_listening
            }
            hostile {
                json_comes_back_as_it_went_in
                long_numbers_keep_every_digit
                results_of_every_kind
                a_mebibyte_is_kept
                random_json_comes_back_equal
                the_limits_of_json_hold
                names_are_only_names
                errors_come_back_as_they_went_in
            }
            properties {
                any_history_ends_where_the_model_says
            }
            queues {
                a_paused_queue_is_left_alone
                a_pause_stays_until_it_is_ended
                no_claim_that_begins_after_a_pause_takes_from_its_queue
                a_resume_is_seen_by_the_next_claim
                only_from_a_priority_up
                claimers_of_one_engine_share_the_work
                one_claimer_awake_leaves_the_others_asleep
                a_resume_wakes_every_claimer
                queues_are_listed_with_what_is_in_them
                a_crowd_is_counted_up_to_a_limit
            }

            reports {
                what_is_said_is_on_record
                a_report_sent_again_changes_nothing
                logs_are_read_in_pages
                what_is_said_is_only_text
                the_lost_may_speak
                retention_removes_what_was_said
                a_report_raced_by_retention_leaves_no_halves
            }
            cancellations {
                an_answer_is_on_record_with_the_end
                a_wish_without_an_answer_says_so
                a_wish_that_recovery_granted_has_no_answer
                a_wish_raced_by_an_end_is_never_forgotten
                wishes_raced_by_retention_leave_no_halves
            }

            unique {
                a_key_is_respected_by_scope_and_status
                a_replaced_task_runs_as_replaced
                a_period_ends
                keys_of_classes_are_apart
                the_same_key_twice_in_one_call
                a_key_goes_over_to_the_last_created
                retention_frees_keys
                keys_that_cannot_be_are_refused
                creators_in_any_order_agree
                a_key_is_whole_when_its_caller_goes_away
                no_two_of_a_key_are_active
                a_replacement_is_never_lost
                creators_and_operators_do_not_disturb_each_other
            }

            flows {
                a_flow_is_found_by_its_correlation_id
                a_task_begins_a_flow_of_its_own
                a_flow_tells_what_happened
                a_large_flow_comes_in_pages
                a_bad_correlation_id_is_refused
                a_bad_parent_is_none
            }

            schedules {
                a_schedule_is_kept_as_it_was_written
                who_has_seen_an_older_version_writes_nothing
                only_what_is_due_is_found
                a_slot_brings_its_task
                of_many_who_see_a_slot_one_fires_it
                a_change_and_a_firing_have_one_winner
                a_removal_and_a_firing_leave_no_halves
                a_new_schedule_of_an_old_name_is_another
                missed_slots_go_by_the_policy
                a_slot_is_left_out_while_its_task_runs
                a_slot_waits_until_its_task_has_ended
                missed_slots_that_wait_follow_each_other
                a_slot_that_waits_hides_no_other
                a_paused_schedule_awaits_nothing
                a_change_of_the_task_keeps_a_missed_slot
                a_slot_that_has_fired_never_fires_again
                old_slots_are_forgotten
                a_removal_leaves_the_tasks
                retention_removes_slots_with_their_tasks
                among_ten_thousand_the_due_ones_are_found
                a_change_wakes_and_a_firing_does_not
                a_heartbeat_tells_when_the_next_slot_is
                a_task_outside_the_slots
            }

            schedule_events {
                missed_slots_are_recorded
                continued_skips_extend_one_event
                manual_runs_are_recorded
                old_schedule_events_are_forgotten
            }

            watching {
                what_moves_is_told
                the_first_of_each_lane_come_next
                endings_are_found_where_they_are_looked_for
                endings_go_by_age_and_limit
                what_failed_is_counted_as_it_is_now
                as_many_are_ahead_as_are_claimed_first
                what_is_paused_or_not_wanted_is_not_ahead
            }

            checks {
                all_is_well_where_nothing_is_wrong
                orphans_are_found
                no_live_engine_is_one_finding
                what_waits_for_nobody_is_found
                failures_are_counted
            }
            exports {
                a_copy_is_put_behind_what_is_there
                a_file_is_imported_whole_or_not_at_all
                an_export_can_be_of_some_tasks
                an_empty_store_is_exported_too
            }

            searches {
                a_search_finds_what_the_filter_means
                a_rare_match_is_found_in_bounded_steps
                a_search_passes_nobody_over
                an_edit_changes_what_it_names
                only_what_waits_is_edited
                an_edit_raced_by_a_claim_has_one_winner
                only_what_has_ended_is_removed
                a_removed_task_frees_its_key
                a_removal_raced_by_a_retry_has_one_winner
                a_rerun_is_a_new_task_of_the_same_flow
            }

            audits {
                what_was_asked_and_done_is_on_record
                the_longest_detail_is_kept
                the_record_is_read_in_pages
                entries_are_found_by_filter
                young_entries_are_not_pruned
            }
            logins {
                a_database_has_one_key
                an_ended_login_stays_ended
            }
            tokens {
                a_token_is_known_by_its_hash
                a_token_ends_with_its_time
                a_revoked_token_is_no_good
                a_name_is_one_tokens
            }
            figures {
                figures_are_summed_by_class_and_step
                figures_sent_again_count_once
                figures_are_of_the_time_asked_for
                old_figures_are_removed_in_steps
                a_heartbeat_tells_the_time
            }
        }
    };
}

/// The tests of [`suite!`]. They stand in modules, so that `cargo test` lists
/// them by promise; the function below is what the given path means outside.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($database:path; $($promise:ident { $($case:ident)* })*) => {
        async fn conformance_database() -> ::std::boxed::Box<dyn $crate::Database> {
            $database().await
        }
        $(
            mod $promise {
                $(
                    #[::tokio::test(flavor = "multi_thread")]
                    async fn $case() {
                        let database = super::conformance_database().await;
                        $crate::run(database, $crate::$promise::$case).await;
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that is written but not listed is never run, and nobody notices.
    #[test]
    fn every_case_is_in_the_suite() {
        let listed = include_str!("lib.rs");
        for source in [
            include_str!("creation.rs"),
            include_str!("claims.rs"),
            include_str!("records.rs"),
            include_str!("snoozes.rs"),
            include_str!("races.rs"),
            include_str!("recovery.rs"),
            include_str!("operations.rs"),
            include_str!("instances.rs"),
            include_str!("listing.rs"),
            include_str!("wake_ups.rs"),
            include_str!("hostile.rs"),
            include_str!("properties.rs"),
            include_str!("queues.rs"),
            include_str!("reports.rs"),
            include_str!("cancellations.rs"),
            include_str!("unique.rs"),
            include_str!("flows.rs"),
            include_str!("schedules.rs"),
            include_str!("schedule_events.rs"),
            include_str!("watching.rs"),
            include_str!("checks.rs"),
            include_str!("exports.rs"),
            include_str!("searches.rs"),
            include_str!("audits.rs"),
            include_str!("tokens.rs"),
            include_str!("logins.rs"),
            include_str!("figures.rs"),
        ] {
            let cases = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn "))
                .filter_map(|line| line.split_once('('));
            let mut count = 0;
            for (case, _) in cases {
                let line = format!("\n                {case}\n");
                assert!(listed.contains(&line), "{case} is not in suite!");
                count += 1;
            }
            assert!(count > 0, "cases are found");
        }
    }

    #[test]
    fn a_good_case_on_a_good_store_passes() {
        judge::<()>(Ok(Ok(())), None);
    }

    #[test]
    #[should_panic(expected = "task 7 is nowhere")]
    fn a_broken_invariant_fails_a_good_case() {
        judge::<()>(Ok(Ok(())), Some("task 7 is nowhere"));
    }

    #[test]
    #[should_panic(expected = "what the case says")]
    fn a_failed_case_keeps_its_words() {
        let panic = Box::new("what the case says");
        judge::<()>(Err(panic), Some("task 7 is nowhere"));
    }

    #[test]
    #[should_panic(expected = "has not ended within")]
    fn a_case_that_hangs_fails() {
        judge(Ok(Err(())), None);
    }
}
