# frozen_string_literal: true

module TaskEngine
  # A task class as a Ruby class:
  #
  #   class Resize < TaskEngine::Task
  #     options retries: 5, timeout: "30s"
  #
  #     def perform(width:, height: nil)
  #       ctx.log("resizing to #{width}")
  #     end
  #   end
  #
  #   Resize.create(connection, width: 80)
  #   Resize.set(after: "10m").create(connection, width: 80)
  #
  # Each attempt has an instance of its own, created without arguments.
  class Task
    # The Context of the attempt.
    attr_reader :ctx

    class << self
      # Sets options of the class, or returns them. A subclass inherits those of its superclass.
      def options(**options)
        inherited = self == Task ? {} : superclass.options
        return inherited.merge(@options || {}) if options.empty?

        @options = (@options || {}).merge(options)
        @definition = nil
        Definition.checked(self.options, name || "of #{inspect}")
      end

      # Sets the name of the task class, or returns it: without one, it is that of the Ruby class.
      def task_class(name = nil)
        @task_class = Checks.name_of(name, "the name of a task class") if name
        @definition = nil if name
        @task_class || self.name || Checks.invalid("#{inspect} has no name; write task_class \"NAME\" in it")
      end

      def create(connection, **parameters)
        set.create(connection, **parameters)
      end

      # Creates a task for each Hash of parameters, all or none.
      def create_many(connection, list)
        set.create_many(connection, list)
      end

      # Options for a creation, as TaskEngine.create has them.
      def set(**options)
        Creator.new(self, options)
      end

      # Its code and options, for workers.
      def definition
        @definition ||= begin
          signature = Signature.new(instance_method(:perform).parameters, 0, task_class)
          Definition.new(task_class, options, signature) { |context, keywords| run(context, keywords) }
        end
      end

      # Whether it has code, or is only a superclass of others.
      def performs?
        method_defined?(:perform)
      end

      def run(context, keywords)
        task = new
        task.instance_variable_set(:@ctx, context)
        task.perform(**keywords)
      end

      private

      def inherited(subclass)
        super
        Registry.add_class(subclass)
      end

      def method_added(name)
        super
        @definition = nil if name == :perform
      end
    end

    # Creates tasks of a class, with options.
    class Creator
      def initialize(task_class, options)
        @task_class = task_class
        @options = options
      end

      def create(connection, **parameters)
        TaskEngine.create(connection, @task_class, parameters, **@options)
      end

      def create_many(connection, list)
        TaskEngine.create_many(connection, list.map do |parameters|
          { class: @task_class, parameters:, **@options }
        end)
      end
    end
  end
end
