# frozen_string_literal: true

require_relative "helper"

# Durations, times, and class definitions.
class UnitTest < Minitest::Test
  Duration = TaskEngine::Duration

  def test_durations
    { "30s" => "30s", "1h 30m" => "5400s", "1h30m" => "5400s", "2 days, 1 hour" => "176400s", "1.5s" => "1.5s",
      "250ms" => "0.25s", 30 => "30s", 0.5 => "0.5s", 2.0 => "2s", "1w" => "604800s", 0 => "0s" }.each do |given, text|
      assert_equal text, Duration.text(given, "time"), given
    end
    ["", "soon", "3", "3 moons", "-3s", -1, Float::NAN, Float::INFINITY, nil, [], "200000d", "3s\nx"].each do |given|
      error = assert_raises(TaskEngine::InvalidArgument, given.inspect) { Duration.text(given, "time") }
      assert_includes error.message, "time is #{given.inspect}; write a duration"
    end
  end

  def test_times
    time = Time.new(2027, 1, 31, 9, 0, 0.25r, "+01:00")
    ["2027-01-31T09:00:00.25+01:00", time, time.to_datetime].each do |given|
      assert_equal "2027-01-31T08:00:00.250000Z", Duration.time(given, "at")
    end
    ["2027-01-31", "2027-01-31 09:00", 5, nil, Date.new(2027)].each do |given|
      assert_raises(TaskEngine::InvalidArgument, given.inspect) { Duration.time(given, "at") }
    end
  end

  def test_task_classes_inherit_and_need_a_name
    base = Class.new(TaskEngine::Task) { options queue: "mail", retries: 2 }
    refute_predicate base, :performs?
    anonymous = Class.new(base) { def perform; end }
    assert_includes assert_raises(TaskEngine::InvalidArgument) { anonymous.definition }.message, "write task_class"
    anonymous.task_class("mail.send")
    anonymous.options(retries: 3)
    assert_equal({ class: "mail.send", queue: "mail", retry: { maximum: 3 } }, anonymous.definition.announcement)
    refute_includes TaskEngine::Registry.definitions.values.map(&:name), nil
  end

  def test_two_task_classes_of_one_name_are_refused
    TaskEngine.task("unit.twice") { nil }
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.task("unit.twice") { nil } }
    assert_includes error.message, "task class unit.twice is defined twice"
    assert_raises(TaskEngine::InvalidArgument) { TaskEngine.task("unit.empty") }
  end

  def test_serve_checks_its_arguments
    assert_raises(TaskEngine::InvalidArgument) { TaskEngine.serve(concurrency: 0) }
    TaskEngine.task("unit.known") { nil }
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.serve(classes: ["unit.knwon"]) }
    assert_includes error.message, "did you mean unit.known?"
  end
end
