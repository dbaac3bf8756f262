# frozen_string_literal: true

module TaskEngine # rubocop:disable Style/Documentation
  # The task classes of this program.
  module Registry
    @blocks = {}
    @classes = []

    module_function

    def add_block(definition)
      @blocks.key?(definition.name) and
        Checks.invalid("task class #{definition.name} is defined twice; give one of them another name")
      @blocks[definition.name] = definition
    end

    def add_class(task)
      @classes << task
    end

    # The definitions by name: all, or those of `only`, which are names and subclasses of Task.
    def definitions(only = nil)
      all = @blocks.dup
      # A class that was loaded again takes the place of the older one.
      classes = @classes.select(&:performs?).to_h { |task| [task.name || task, task] }.values
      classes.each do |task|
        definition = task.definition
        all.key?(definition.name) and
          Checks.invalid("task class #{definition.name} is defined twice; give one of them another name")
        all[definition.name] = definition
      end
      only ? selected(all, only) : all
    end

    def selected(all, only)
      only.to_h do |task|
        name = task.is_a?(Class) ? task.task_class : task.to_s
        [name, all[name] || Checks.invalid("task class #{name} is not defined; #{Checks.hint(name, all.keys)}")]
      end
    end
    private_class_method :selected
  end

  # Defines a task class with a block, which gets the context and the parameters as keywords:
  #
  #   TaskEngine.task("greet", retries: 5, timeout: "30s") do |ctx, name:|
  #     "Hello #{name}!"
  #   end
  def self.task(name, **options, &code)
    code or Checks.invalid("task class #{name} has no code; pass a block")
    name = name.to_s
    signature = Signature.new(code.parameters, 1, name)
    Registry.add_block(Definition.new(name, options, signature) { |context, keywords| code.call(context, **keywords) })
  end
end
