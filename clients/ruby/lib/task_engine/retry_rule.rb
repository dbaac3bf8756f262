# frozen_string_literal: true

module TaskEngine
  # Parts of a retry rule: those of a class, and those that a new task overrides.
  module RetryRule
    KNOWN = %i[maximum first_delay factor cap jitter restart_after_progress].freeze
    EXAMPLE = "{ maximum: 3, first_delay: \"10s\" }"
    COUNT = (0..((2**31) - 1))

    module_function

    # `retries: 5` is short for `retry: { maximum: 5 }`.
    def of(options)
      rule, retries = options.values_at(:retry, :retries)
      return if rule.nil? && retries.nil?
      return { maximum: Checks.whole(retries, "retries", COUNT) } if rule.nil?

      retries.nil? or Checks.invalid("retries and retry are given; write retries, or retry: { maximum: #{retries} }")
      checked(Checks.options(Checks.hash_of(rule, "retry", EXAMPLE), KNOWN, "retry"))
    end

    # As the context of a task has it: durations in milliseconds.
    def in_milliseconds(rule)
      rule.to_h do |name, value|
        %i[first_delay cap].include?(name) ? [:"#{name}_ms", (value.to_f * 1000).round] : [name, value]
      end
    end

    def checked(rule)
      Checks.whole(rule[:maximum], "maximum of retry", COUNT) if rule.key?(:maximum)
      %i[first_delay cap].each do |name|
        rule[name] = Duration.text(rule[name], "#{name} of retry") if rule.key?(name)
      end
      { factor: 0..1_000_000, jitter: 0..1 }.each do |name, range|
        next unless rule.key?(name)

        (rule[name].is_a?(Numeric) && range.cover?(rule[name])) or
          Checks.invalid("#{name} of retry is #{rule[name].inspect}; write a number from #{range.min} to #{range.max}")
      end
      rule
    end
    private_class_method :checked
  end
end
