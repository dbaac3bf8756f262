//! One suite of behaviour that every store passes.
//!
//! ```text
//! async fn fresh() -> Box<dyn Database> {
//!     Box::new(EmptyDatabase::create().await)
//! }
//!
//! // One test per case, each with its own database.
//! task_engine_conformance::suite!(fresh);
//! ```
//!
//! # Map
//! - [`creation`], [`claims`], [`records`], [`races`], [`recovery`],
//!   [`operations`], [`instances`], [`listing`], [`wake_ups`], [`hostile`],
//!   [`properties`], [`queues`], [`reports`], [`cancellations`],
//!   [`mod@unique`], [`flows`], [`schedules`], [`schedule_events`],
//!   [`schedule_slots`], [`unique_races`], [`watching`],
//!   [`checks`], [`exports`], [`searches`], [`audits`], [`tokens`], [`logins`],
//!   [`rollups`], [`completions`], [`durable_steps`], [`durable_waits`],
//!   [`durable_children`], [`durable_races`], [`durable_exports`], [`limits`],
//!   [`limits_rates`], [`limits_order`], [`limits_set`], [`limits_views`],
//!   [`flow_dependencies`], [`flow_conditions`], [`flow_attempts`], [`flow_repair`],
//!   [`flow_members`], [`flow_views`], [`flow_races`]: the cases, by promise;
//! - [`everything`]: a store with all kinds of rows;
//! - [`fixture`], [`durable`], [`flow_fixture`], [`waiting`]: helpers.

pub mod audits;
pub mod cancellations;
pub mod checks;
pub mod claims;
pub mod completions;
pub mod creation;
pub mod durable;
pub mod durable_children;
pub mod durable_exports;
pub mod durable_races;
pub mod durable_steps;
pub mod durable_waits;
pub mod everything;
pub mod exports;
pub mod fixture;
pub mod flow_attempts;
pub mod flow_conditions;
pub mod flow_dependencies;
pub mod flow_fixture;
pub mod flow_members;
pub mod flow_races;
pub mod flow_repair;
pub mod flow_views;
pub mod flows;
pub mod hostile;
pub mod instances;
pub mod limits;
pub mod limits_order;
pub mod limits_rates;
pub mod limits_set;
pub mod limits_views;
pub mod listing;
pub mod logins;
mod model;
pub mod operations;
pub mod properties;
pub mod queues;
pub mod races;
pub mod records;
pub mod recovery;
pub mod reports;
pub mod rollups;
pub mod schedule_events;
pub mod schedule_slots;
pub mod schedules;
pub mod searches;
pub mod seeking;
pub mod snoozes;
pub mod tokens;
pub mod unique;
pub mod unique_races;
pub mod waiting;
pub mod wake_ups;
pub mod watching;

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;

use crate::completions::{Local, TestTransaction};

/// One empty database, removed when this is dropped or the process ends.
pub trait TestDatabase: Send + Sync {
    /// A new handle with tables, as another process would have.
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>>;

    /// A transaction of an application, on its own connection.
    fn begin(&self) -> Local<'_, Box<dyn TestTransaction>>;

    /// The effects of such transactions, in order: [`TestTransaction::effect`].
    fn effects(&self) -> Local<'_, Vec<TaskId>>;

    /// Whether a store receives wake-ups from other handles. If not, it polls.
    fn receives_wake_ups(&self) -> bool {
        true
    }
}

/// Only a hang takes this long.
const CASE_TIMEOUT: Duration = Duration::from_secs(240);

/// Runs one case and then verifies the invariants, also after a failure: a broken
/// invariant often explains it.
pub async fn run(db: Box<dyn TestDatabase>, case: impl AsyncFnOnce(&dyn TestDatabase)) {
    let case = AssertUnwindSafe(tokio::time::timeout(CASE_TIMEOUT, case(&*db)));
    let outcome = case.catch_unwind().await;
    let verified =
        tokio::time::timeout(CASE_TIMEOUT, async { db.open().await.verify().await }).await;
    let violation = match verified {
        Err(_) => Some("verify hangs".to_owned()),
        Ok(Err(error)) => Some(format!("verify fails: {error}")),
        Ok(Ok(violations)) if violations.is_empty() => None,
        Ok(Ok(violations)) => Some(format!("invariants broken: {violations:#?}")),
    };
    report(outcome, violation.as_deref());
}

/// Prints the violation; the panic of the case itself comes first.
fn report<E>(outcome: Result<Result<(), E>, Box<dyn Any + Send>>, violation: Option<&str>) {
    if let Some(violation) = violation {
        eprintln!("{violation}");
    }
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(Err(_)) => panic!("the case has not ended within {CASE_TIMEOUT:?}"),
        Ok(Ok(())) => assert_eq!(violation, None),
    }
}

/// Makes one test per case. The argument is an async function without
/// arguments that returns a `Box<dyn TestDatabase>`.
#[macro_export]
macro_rules! suite {
    ($database:path) => {
        $crate::__cases! {
            $database;
            creation {
                created_task_waits_as_requested
                created_tasks_keep_their_order
                one_call_creates_many_tasks
                empty_call_creates_nothing
                create_is_all_or_nothing
                dropped_create_leaves_whole_tasks
                task_is_due_after_delay
                concurrent_creators_do_not_conflict
                out_of_range_time_is_rejected
            }
            claims {
                claim_returns_complete_tasks
                claim_respects_its_limit
                concurrent_claimers_claim_each_task_once
                claims_follow_priority_time_and_id
                claim_respects_classes_and_queues
                unserved_tasks_do_not_hide_others
                future_task_is_not_claimed_early
                scheduled_task_is_claimed_on_time
                late_tasks_sorting_first_are_claimed
                lost_claim_reply_is_found_again
            }
            completions {
                commit_completes_task
                rollback_completes_nothing
                completion_survives_engine_loss
                reclaimed_attempt_cannot_complete
                recovery_skips_open_transactions
                open_transaction_is_not_settled
                completion_wins_over_cancel_request
                completion_frees_unique_key
            }
            durable_steps {
                recorded_step_is_loaded
                first_record_of_name_wins
                step_of_ended_attempt_is_refused
                good_steps_of_batch_are_recorded
                sleeps_and_waits_have_end
                wait_returns_early_signal
                recovery_restarts_retries_after_step
                task_is_created_with_steps
                hostile_steps_are_kept
            }
            durable_waits {
                suspended_task_waits_until_deadline
                early_signal_ends_suspension
                one_call_suspends_many_tasks
                cancel_request_wins_over_suspension
                suspended_task_can_be_cancelled
                late_suspension_is_kept_as_evidence
                repeated_suspension_changes_nothing
                signal_wakes_suspended_task
                first_signal_of_name_counts
                signal_finds_task_by_key
                invalid_signal_name_is_refused
                signal_keeps_time_of_retry
                timeout_refuses_later_signal
                earlier_signal_wins_over_timeout
                ended_attempt_cannot_time_out
                suspended_task_can_be_retried
                edited_task_stays_suspended
                hostile_payload_is_kept
            }
            durable_children {
                call_creates_children_once
                call_of_any_size_is_recorded
                parent_is_not_its_child
                shared_child_resumes_all_parents
                parent_continues_after_last_child
                last_child_wakes_engines
                suspension_sees_ended_children
                operations_resume_parents
                removed_child_has_ended
                missed_end_is_found
                missed_end_moves_watch
                signal_wakes_parent
                earlier_children_are_not_awaited
                edited_parent_stays_suspended
                outcomes_are_read_by_attempt
                retention_keeps_children_for_parent
                removed_task_leaves_no_suspension
            }
            durable_races {
                signal_during_suspension_is_seen
                signal_and_timeout_have_one_winner
                concurrent_signals_have_one_winner
                child_end_during_suspension_is_seen
                concurrent_hints_resume_once
                step_and_recovery_agree
            }
            records {
                success_is_recorded
                failure_is_recorded
                retry_waits_until_due
                attempt_numbers_increase
                release_uses_no_retry
                repeated_record_changes_nothing
                large_record_batch_in_any_order
                only_late_results_are_late
                finished_claims_are_removed
                only_unended_attempts_are_running
                lost_engine_may_record_first
            }
            snoozes {
                snooze_keeps_the_retry_number
                snoozed_task_runs_again
                snoozed_task_can_be_cancelled
                snooze_is_no_error
            }
            races {
                end_and_recovery_have_one_winner
                two_recoveries_reclaim_each_attempt_once
                claim_of_dying_engine_is_recovered
                heartbeat_during_loss_replies_correctly
                cancel_and_claim_have_one_winner
                cancel_during_end_reports_correctly
                concurrent_cancels_cancel_once
                concurrent_retries_make_one_attempt
                prune_and_retry_leave_whole_tasks
                one_instance_gets_a_name
                invariants_hold_under_load
            }
            recovery {
                crash_is_recorded
                class_retry_rule_decides
                task_retry_rule_overrides_class
                invalid_retry_rule_allows_recovery
                crash_counts_as_failure
                late_result_is_kept_as_evidence
                live_engine_keeps_its_attempts
                stopped_engine_attempts_are_reclaimed
                unknown_claims_are_released
                recovery_applies_cancel_request
                recovery_of_unknown_instance_is_empty
            }
            operations {
                cancel_waiting_task
                cancel_running_task
                cancel_request_before_retry_cancels_task
                applied_cancel_request_allows_retry
                cancel_ended_or_missing_task
                duplicate_id_in_one_call
                retry_failed_or_cancelled_task
                retry_keeps_time_of_cancelled_task
                manual_retry_resets_retry_number
                retry_waiting_task
                retry_is_refused_when_impossible
                retention_removes_selected_tasks
                retention_respects_age_and_limit
                retention_during_open_claim
            }
            instances {
                registered_instance_is_listed
                schemas_end_with_their_engine
                gone_process_is_reported_at_once
                instance_name_is_unique_while_live
                heartbeat_renews_lease
                expired_lease_is_seen_and_renewed
                only_dead_instances_become_lost
                lost_instance_claims_nothing
                held_tasks_are_listed
                instances_are_listed_newest_first
                heartbeat_reports_waiting_classes
                old_instances_are_removed
                instances_with_history_stay
            }
            limits {
                max_holds_for_all_tasks
                max_holds_for_each_key
                engines_share_limit
                every_end_frees_key
                recovery_frees_keys
                unknown_claims_free_keys
                queue_limit_counts_all_classes
                limits_apply_together
                running_attempts_count_for_new_limit
                limit_changes_at_run_time
                priorities_come_first
                plain_tasks_get_their_turn
                paused_queue_starts_no_limited_task
                future_limited_task_waits
                waiting_limited_tasks_can_be_changed
                limits_hold_under_load
            }
            limits_rates {
                rate_holds_in_every_window
                claim_reports_next_start
                even_rate_spaces_starts
                rate_and_max_apply_together
                rates_apply_together
                changed_rate_counts_again
                closed_key_starts_nothing
                closed_key_opens_after_its_time
            }
            limits_order {
                tasks_run_in_order
                failing_head_blocks_its_key
                snoozed_head_blocks_its_key
                suspended_head_blocks_its_key
                suspended_task_frees_its_key
                interrupted_head_stays_first
                blocked_head_is_not_overtaken
                holder_starts_after_limit_is_added
                edited_holder_frees_key
                keys_share_workers
                weights_give_larger_shares
                burst_hides_no_other_key
                long_backlog_runs_in_order
                order_holds_under_load
            }
            limits_set {
                last_declaration_decides
                declared_limit_applies
                operator_overrides_declaration
                wrong_limits_are_refused
                too_many_declared_limits_are_refused
                named_limit_applies_to_naming_tasks
                task_names_key_of_class_limit
                unknown_limit_is_refused
                named_limit_applies_again
                keys_are_values_of_any_kind
                changed_key_parameter_applies
                added_limit_applies_to_waiting_tasks
                unique_limited_task_is_replaced
            }
            limits_views {
                rate_has_no_holders
                limited_tasks_are_shown_in_their_queue
                limits_of_task_are_shown
                waiting_holder_is_shown
                limit_usage_is_shown
                unused_keys_are_removed
                limits_are_exported
            }
            listing {
                tasks_are_filtered_by_status
                task_rows_agree_everywhere
                task_pages_are_consecutive
                missing_task_is_not_found
                store_reports_its_location
            }
            wake_ups {
                listening_starts_with_wake_up
                create_wakes
                create_by_other_handle_wakes
                scheduled_task_wakes
                retry_wakes
                cancel_request_wakes
                freed_limit_wakes
                no_wake_up_is_missed
            }
            hostile {
                json_round_trips_unchanged
                long_numbers_keep_every_digit
                results_of_every_kind
                one_mebibyte_of_json_is_kept
                random_json_round_trips
                json_limits_are_enforced
                hostile_names_are_stored_unchanged
                errors_round_trip_unchanged
            }
            properties {
                random_histories_match_model
            }
            queues {
                paused_queue_is_not_claimed
                pause_lasts_until_resumed
                claim_after_pause_skips_queue
                next_claim_sees_resume
                pause_respects_minimum_priority
                claimers_of_one_engine_share_tasks
                one_awake_claimer_leaves_others_idle
                resume_wakes_every_claimer
                queues_are_listed_with_counts
                queue_counts_stop_at_limit
            }

            reports {
                reports_are_recorded
                repeated_report_changes_nothing
                logs_are_read_in_pages
                hostile_log_text_is_kept
                lost_instance_may_report
                retention_removes_reports
                report_and_retention_leave_whole_tasks
            }
            cancellations {
                cancel_response_is_recorded_with_end
                unanswered_cancel_request_is_recorded
                recovered_cancel_request_has_no_response
                cancel_request_during_end_is_kept
                cancel_and_retention_leave_whole_tasks
            }

            unique {
                unique_key_respects_scope_and_status
                replaced_task_runs_with_new_values
                unique_period_ends
                classes_have_separate_keys
                duplicate_key_in_one_call
                key_belongs_to_last_created
                retention_frees_keys
                invalid_keys_are_rejected
            }

            unique_races {
                concurrent_creators_agree_on_key
                dropped_create_leaves_key_consistent
                one_active_task_per_key
                replacement_is_never_lost
                creators_and_operators_do_not_conflict
            }
            flows {
                flow_is_found_by_correlation_id
                task_starts_its_own_flow
                flow_lists_its_executions
                large_flow_is_paged
                invalid_correlation_id_is_rejected
                unknown_parent_is_ignored
            }
            flow_dependencies {
                flow_creates_its_tasks
                flow_inherits_correlation_id
                single_task_depends_on_others
                invalid_flow_creates_nothing
                blocked_task_is_not_claimed
                chain_runs_in_order
                fan_in_starts_after_last
                wide_flow_runs
                existing_tasks_are_depended_on
                claimed_dependency_is_noticed
                later_attempts_know_dependents
                retried_task_is_open_for_new_dependents
                replaced_unique_task_is_depended_on
                kept_unique_task_is_depended_on
                blocked_task_keeps_its_options
                results_of_dependencies_are_read
            }
            flow_conditions {
                each_condition_follows_each_end
                two_dependencies_follow_both_ends
                task_is_cancelled_early
                cancellation_reaches_end_of_chain
                other_branches_run
                cancelled_blocked_task_cancels_dependents
                cancel_request_resolves_dependents
                conditions_apply_together
                missed_ends_are_found
                heartbeats_alone_run_flow
            }
            flow_attempts {
                interrupted_dependency_is_open
                recovery_resolves_dependents
                durable_task_in_flow_waits_for_children
                signal_does_not_start_blocked_task
                blocked_tasks_of_many_classes_start
                limits_apply_after_dependencies
                limited_task_is_depended_on
                paused_queue_holds_dependents
            }
            flow_repair {
                rerun_from_step_keeps_dependencies
                retry_restores_cancelled_tasks
                restored_task_is_cancelled_again
                retry_restores_if_all_may_succeed
                retry_keeps_cancelled_by_operator
                blocked_task_waits_for_retried_one
                started_task_is_left_alone
                cancelled_blocked_task_runs_again
                blocked_task_is_not_retried
                whole_flow_is_retried
                edited_task_stays_blocked
                needed_task_is_not_deleted
                retention_keeps_dependencies
            }
            flow_members {
                members_join_running_task
                failed_member_decides_callbacks
                restored_callback_waits_for_new_members
                members_add_members
                members_need_dependents
                ended_attempt_adds_no_members
                invalid_members_are_refused
                unique_member_is_awaited
                large_batch_runs
                members_join_during_ends
                members_and_recovery_agree
            }
            flow_views {
                blocked_tasks_are_counted
                flows_are_listed
                flow_counts_stop_at_limit
                flow_may_grow
                blocked_rows_agree_everywhere
                blocked_tasks_are_not_due
                removed_dependency_is_listed
                open_flow_is_exported
                dependency_outside_export_counts_removed
            }
            flow_races {
                concurrent_ends_are_resolved
                early_cancellation_is_not_missed
                creation_and_end_agree
                retry_during_cancellation_restores
                retry_and_end_agree
                removal_and_creation_agree
                concurrent_creators_share_dependencies
                random_flows_follow_their_policy
            }

            schedules {
                schedule_round_trips_unchanged
                stale_schedule_version_is_not_written
                only_due_schedules_are_found
                slot_creates_its_task
                one_engine_fires_each_slot
                change_and_firing_have_one_winner
                removal_and_firing_stay_consistent
                reused_name_is_new_schedule
                schedule_removal_keeps_tasks
                due_schedules_are_found_among_many
                schedule_change_wakes
                heartbeat_reports_next_slot
                manual_run_is_outside_slots
            }

            schedule_slots {
                missed_slots_follow_policy
                overlapping_slot_is_skipped
                overlapping_slot_waits_for_task
                waiting_missed_slots_run_in_order
                waiting_slot_hides_no_other
                paused_schedule_fires_nothing
                task_change_keeps_missed_slot
                fired_slot_never_fires_again
                old_slots_are_removed
                retention_removes_slots_with_tasks
            }
            schedule_events {
                missed_slots_are_recorded
                continued_skips_extend_one_event
                manual_runs_are_recorded
                old_schedule_events_are_removed
            }

            watching {
                activity_is_reported
                next_tasks_come_per_lane
                endings_are_filtered
                endings_respect_age_and_limit
                failure_counts_are_current
                queue_position_matches_claim_order
                queue_position_skips_paused_and_unserved
            }

            checks {
                healthy_store_has_no_findings
                orphans_are_found
                no_live_engine_is_one_finding
                unserved_tasks_are_found
                unserved_schedule_is_found
                failures_are_counted
            }
            exports {
                import_appends_to_existing_tasks
                import_is_all_or_nothing
                export_can_be_filtered
                empty_store_can_be_exported
            }
            durable_exports {
                durable_rows_move_together
                imported_suspended_tasks_continue
                children_outside_export_count_removed
                running_task_exports_no_suspension
                wrong_durable_rows_are_refused
            }

            searches {
                search_finds_matching_tasks
                rare_match_needs_bounded_steps
                search_skips_no_task
                edit_changes_named_fields
                only_waiting_tasks_are_edited
                edit_and_claim_have_one_winner
                only_ended_tasks_are_removed
                removed_task_frees_its_key
                removal_and_retry_have_one_winner
                rerun_creates_task_in_same_flow
            }

            audits {
                audit_records_request_and_result
                longest_audit_detail_is_kept
                audit_is_read_in_pages
                audit_entries_are_filtered
                recent_audit_entries_are_kept
            }
            logins {
                database_has_one_key
                ended_login_stays_ended
            }
            tokens {
                token_is_found_by_hash
                token_expires
                revoked_token_is_rejected
                token_names_are_unique
            }
            rollups {
                rollups_are_summed_by_class
                repeated_rollups_count_once
                rollups_cover_requested_time
                old_rollups_are_removed_in_steps
                heartbeat_reports_database_time
            }
        }
    };
}

/// The tests of [`suite!`], in one module per promise.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($database:path; $($promise:ident { $($case:ident)* })*) => {
        async fn conformance_database() -> ::std::boxed::Box<dyn $crate::TestDatabase> {
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
mod tests;
