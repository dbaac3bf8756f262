# frozen_string_literal: true

module TaskEngine
  # A task that is about to be created: its arguments, checked, in the form of the HTTP API.
  class NewTask
    DEPENDENCIES = { after_task: :after, after_task_end: :after_end, after_task_failure: :after_failure }.freeze
    OPTIONS = %i[after at queue priority unique scope on_conflict limits correlation_id traceparent retry retries]
              .concat(DEPENDENCIES.keys).freeze
    CONFLICTS = %w[keep replace replace_parameters replace_time].freeze
    LIMITS = 3
    TRACEPARENT = /\A\h{2}-\h{32}-\h{16}-\h{2}/

    attr_reader :fields, :dependencies, :secret

    def initialize(task_class, parameters, options)
      options = Checks.options(options, OPTIONS, "a task")
      @fields = {}
      @dependencies = {}
      @secret = []
      assign_class(task_class, parameters, options)
      assign_time(options)
      assign_place(options)
      assign_unique(options)
      assign_origin(options)
      assign_dependencies(options)
    rescue NotJson => error
      raise InvalidArgument, error.message
    end

    # From { class: "resize", parameters: { width: 80 }, priority: 5 }.
    def self.from(hash)
      Checks.hash_of(hash, "a task", "{ class: \"resize\", parameters: { width: 80 } }")
      options = hash.transform_keys(&:to_sym)
      task_class, parameters = options.delete(:class), options.delete(:parameters)
      new(task_class, parameters || {}, options)
    end

    def unique?
      @fields.key?(:key)
    end

    private

    def assign_class(task_class, parameters, options)
      if task_class.is_a?(Class) && task_class <= Task
        declared = task_class.definition
        declared.signature.check(parameters) if parameters.is_a?(Hash)
        @secret = declared.options.fetch(:secret, [])
        %i[queue priority].each { |name| options[name] = declared.options[name] if options[name].nil? }
        task_class = declared.name
      end
      @fields[:class] = Checks.name_of(task_class, "the class of a task")
      Json.generate(Checks.hash_of(parameters, "parameters", "{ width: 80 }"), "the parameters")
      @fields[:parameters] = parameters
    rescue InvalidParameters => error
      raise InvalidArgument, error.message
    end

    def assign_time(options)
      at, after = options.values_at(:at, :after)
      at.nil? || after.nil? or Checks.invalid("at and after are given; write one of them")
      @fields[:scheduled_at] = Duration.time(at, "at") unless at.nil?
      @fields[:after] = Duration.text(after, "after") unless after.nil?
    end

    def assign_place(options)
      queue, priority, limits = options.values_at(:queue, :priority, :limits)
      @fields[:queue] = Checks.name_of(queue, "queue") unless queue.nil?
      @fields[:priority] = Checks.whole(priority, "priority", Checks::INT32) unless priority.nil?
      return if limits.nil?

      Checks.hash_of(limits, "limits", "{ api: \"acme\" }").length <= LIMITS or
        Checks.invalid("a task names #{limits.length} limits; at most #{LIMITS} are possible")
      @fields[:limits] = limits.to_h { |name, key| [Checks.name_of(name, "the name of a limit"), key&.to_s] }
    end

    def assign_unique(options)
      key, scope, on_conflict = options.values_at(:unique, :scope, :on_conflict)
      if key.nil?
        (scope.nil? && on_conflict.nil?) or Checks.invalid("scope and on_conflict need a key; add unique: \"KEY\"")
        return
      end
      @fields[:key] = Checks.name_of(key, "unique", bytes: 500)
      @fields[:scope] = scope(scope) unless scope.nil?
      @fields[:on_conflict] = Checks.one_of(on_conflict, "on_conflict", CONFLICTS) unless on_conflict.nil?
    end

    def scope(scope)
      return scope.to_s if %w[active waiting].include?(scope.to_s)

      Duration.text(scope, "scope")
    rescue InvalidArgument
      Checks.invalid("scope is #{scope.inspect}; write :active, :waiting or a duration like \"10m\"")
    end

    def assign_origin(options)
      correlation_id, traceparent = options.values_at(:correlation_id, :traceparent)
      @fields[:correlation_id] = Checks.name_of(correlation_id, "correlation_id") unless correlation_id.nil?
      unless traceparent.nil?
        TRACEPARENT.match?(traceparent.to_s) or
          Checks.invalid("traceparent is #{traceparent.inspect}; write the W3C header, like 00-TRACE-SPAN-01")
        @fields[:traceparent] = traceparent
      end
      rule = RetryRule.of(options)
      @fields[:retry] = RetryRule.in_milliseconds(rule) if rule
    end

    def assign_dependencies(options)
      DEPENDENCIES.each do |option, field|
        ids = Array(options[option])
        @dependencies[field] = ids.map { |id| Checks.task_id(id, option) } unless ids.empty?
      end
      return if @dependencies.empty? || !unique?

      Checks.invalid("a task with dependencies cannot be unique; leave out unique")
    end
  end
end
