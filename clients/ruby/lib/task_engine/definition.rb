# frozen_string_literal: true

module TaskEngine
  # A task class: its name, its options, and its code.
  class Definition
    OPTIONS = %i[timeout grace retry retries queue priority result_bytes log_lines secret limit rate in_order fair
                 limits parameters].freeze
    RESULT_BYTES = 1024 * 1024

    attr_reader :name, :options, :signature

    # The block gets the context and the keyword parameters.
    def initialize(name, options, signature, &code)
      @name = Checks.name_of(name, "the name of a task class")
      @options = self.class.checked(options, @name)
      @signature = signature
      @code = code
    end

    def call(context, parameters)
      @code.call(context, @signature.keywords(parameters))
    end

    def result_bytes
      @options.fetch(:result_bytes, RESULT_BYTES)
    end

    # Its entry in the announcement of a worker.
    def announcement
      rest = @options.except(:parameters)
      rest[:schema] = @options[:parameters] if @options.key?(:parameters)
      { class: @name }.merge(rest)
    end

    def self.checked(given, name)
      options = Checks.options(given, OPTIONS, "task class #{name}").compact
      rule = RetryRule.of(options)
      options.delete(:retries)
      options[:retry] = rule if rule
      %i[timeout grace].each { |time| options[time] = Duration.text(options[time], time) if options.key?(time) }
      options[:queue] = Checks.name_of(options[:queue], "queue") if options.key?(:queue)
      Checks.whole(options[:priority], "priority", Checks::INT32) if options.key?(:priority)
      Checks.whole(options[:result_bytes], "result_bytes", 1..RESULT_BYTES) if options.key?(:result_bytes)
      Checks.whole(options[:log_lines], "log_lines", 0..1000) if options.key?(:log_lines)
      options[:secret] = Array(options[:secret]).map { |path| Checks.name_of(path, "secret") } if options.key?(:secret)
      Checks.hash_of(options[:parameters], "parameters", "{ type: \"object\" }") if options.key?(:parameters)
      Json.generate(options, "the options of task class #{name}")
      options
    rescue NotJson => error
      raise InvalidArgument, error.message
    end
  end
end
