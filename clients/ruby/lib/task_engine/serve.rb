# frozen_string_literal: true

module TaskEngine # rubocop:disable Style/Documentation
  # Executes tasks until the engine closes the standard input. With `connect:` or the variable
  # TASK_ENGINE_CONNECT it connects to an engine instead, and runs until SIGTERM or SIGINT.
  #
  #   concurrency   how many tasks run at a time, each in a thread
  #   classes       names and subclasses of Task; default: all that are defined
  #   connect       tcp://HOST:PORT, tls://HOST:PORT or unix:PATH
  #   token, name   for the engine; default: TASK_ENGINE_LISTEN_TOKEN, and its address
  #   certificate_authority   a file; default: TASK_ENGINE_CONNECT_CA, or those of the system
  def self.serve(concurrency: 5, classes: nil, connect: nil, token: nil, name: nil, certificate_authority: nil)
    Checks.whole(concurrency, "concurrency", 1..10_000)
    definitions = Registry.definitions(classes)
    definitions.empty? and Checks.invalid("no task class is defined; call TaskEngine.task, or write a subclass of " \
                                          "TaskEngine::Task with a method perform")
    connect ||= present(ENV.fetch("TASK_ENGINE_CONNECT", nil))
    return Worker::Stdio.run(definitions, concurrency) unless connect

    authority = certificate_authority || present(ENV.fetch("TASK_ENGINE_CONNECT_CA", nil))
    address = Worker::Address.new(connect, certificate_authority: authority)
    token ||= present(ENV.fetch("TASK_ENGINE_LISTEN_TOKEN", nil))
    Worker::Remote.new(address, definitions, concurrency, name:, token:).run
  rescue Refused => error
    abort "task_engine: #{error.message}"
  end

  def self.present(text)
    text unless text.nil? || text.empty?
  end
  private_class_method :present
end
