# frozen_string_literal: true

module TaskEngine
  # The keyword parameters of the code of a task. They are compared before the call, because an
  # ArgumentError may come from the code itself.
  class Signature
    # From Method#parameters or Proc#parameters; `positional` is how many positional ones are passed.
    def initialize(parameters, positional, task_class)
      @task_class = task_class
      @required = parameters.filter_map { |kind, name| name if kind == :keyreq }
      @known = @required + parameters.filter_map { |kind, name| name if kind == :key }
      @takes_all = parameters.any? { |kind, _| kind == :keyrest }
      @is_empty = @known.empty? && !@takes_all
      others = parameters.count { |kind, _| %i[req opt].include?(kind) }
      return if others <= positional

      Checks.invalid("the code of task class #{task_class} takes #{others} positional parameters; " \
                     "write the parameters of the task as keywords, like name:, or **parameters")
    end

    # The parameters as keywords.
    def keywords(parameters)
      check(parameters)
      parameters.transform_keys(&:to_sym)
    end

    def check(parameters)
      return if @is_empty && parameters.empty?

      given = parameters.keys.map(&:to_sym)
      missing = @required - given
      missing.empty? or fail_with("misses the parameter #{missing.join(", ")}")
      return if @takes_all

      unknown = given - @known
      unknown.empty? or
        fail_with("has no parameter #{unknown.join(", ")}; #{Checks.hint(unknown.first, @known)}")
    end

    private

    def fail_with(problem)
      raise InvalidParameters, "task class #{@task_class} #{problem}"
    end
  end
end
