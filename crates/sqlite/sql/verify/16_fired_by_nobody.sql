-- A slot that has fired belongs to a schedule, and is not awaited again.
SELECT 'slot ' || fired.slot || ' of schedule ' || fired.schedule_id
    || CASE WHEN schedule.id IS NULL THEN ' has no schedule' ELSE ' has fired and is awaited again' END
FROM task_engine_fired_slots AS fired
LEFT JOIN task_engine_schedules AS schedule ON schedule.id = fired.schedule_id
WHERE schedule.id IS NULL OR fired.slot >= schedule.next_at
ORDER BY fired.schedule_id, fired.slot
