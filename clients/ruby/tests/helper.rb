# frozen_string_literal: true

require "fileutils"
require "json"
require "minitest/autorun"
require "open3"
require "tmpdir"
require_relative "../lib/task_engine"

# What the tests share: folders, worker processes over pipes, and engines.
module Helper
  LIB = File.expand_path("../lib", __dir__)
  CHECK_WORKER = File.expand_path("check_worker.rb", __dir__)
  BINARY = ENV.fetch("TASK_ENGINE_TEST_BINARY") { abort "set TASK_ENGINE_TEST_BINARY to the program task-engine" }
  # Long, because the machine of the tests may be slow. Reached only by a failure.
  LIMIT = 30

  # A worker that a test talks to as an engine does.
  class WorkerProcess
    attr_reader :announcement, :pid

    def initialize(*command, **options)
      command = ["ruby", "-I#{LIB}", CHECK_WORKER] if command.empty?
      @stderr, error = IO.pipe
      @in, @out, @wait = Open3.popen2(*command, err: error, **options)
      error.close
      @pid = @wait.pid
      @messages = Thread.new { @stderr.read }
      @announcement = read
    end

    def send_line(line)
      @in.write(line.is_a?(String) ? line : "#{JSON.generate(line)}\n")
      @in.flush
    end

    def task(id, task_class, parameters = {}, **more)
      send_line({ id:, task_id: id.to_i, attempt: 1, retry_number: 0, class: task_class,
                  correlation_id: id.to_i.to_s, parameters:, **more })
    end

    # The next line, as a Hash; nil at the end.
    def read
      line = Timeout.timeout(LIMIT) { @out.gets }
      line && JSON.parse(line)
    end

    # A task and its answer, which is the next line.
    def run(task_class, parameters = {}, **more)
      @number = (@number || 0) + 1
      task("#{@number}.1", task_class, parameters, **more)
      read
    end

    # Closes its standard input: the lines that it still writes, its exit status, its standard error.
    def close
      @in.close
      rest = Timeout.timeout(LIMIT) { @out.read }
      [rest.lines.map { |line| JSON.parse(line) }, Timeout.timeout(LIMIT) { @wait.value }, @messages.value]
    end

    # The engine reads no more, and then writes no more: the exit status.
    def lose
      @out.close
      sleep 0.2
      @in.close
      Timeout.timeout(LIMIT) { @wait.value }
    end

    def kill
      Process.kill("KILL", @pid)
      @wait.value
    rescue Errno::ESRCH
      nil
    end
  end

  # A folder with a database and engines.
  class Site
    attr_reader :folder, :database

    def initialize(folder, database: nil)
      @folder = folder
      @database = database || "sqlite:#{folder}/tasks.db"
      @engines = []
      @log = File.join(folder, "log")
    end

    def write(name, text)
      File.write(File.join(@folder, name), text)
    end

    # task-engine.toml with one worker.
    def configure(worker, more = "")
      write("task-engine.toml", <<~TOML)
        [worker.ruby]
        command = ["ruby", "-I#{LIB}", "#{worker}"]
        #{more}
      TOML
    end

    def run(*arguments)
      output, status = Open3.capture2e(environment, BINARY, *arguments, chdir: @folder)
      [output, status.exitstatus]
    end

    def run!(*arguments)
      output, code = run(*arguments)
      code.zero? or raise "task-engine #{arguments.join(" ")}: exit code #{code}: #{output}\n#{log}"
      output
    end

    def create(task_class, parameters = {}, *options)
      out, err, status = Open3.capture3(environment, BINARY, "create", task_class, JSON.generate(parameters), *options,
                                        chdir: @folder)
      status.success? or raise err
      Integer(out)
    end

    # Waits for the end of a task: { "status", "result", "error" }.
    def wait(id)
      out, err, status = Open3.capture3(environment, BINARY, "wait", id.to_s, "--timeout", "#{LIMIT}s", chdir: @folder)
      [0, 10].include?(status.exitstatus) or raise "waiting for task #{id}: #{err}\n#{log}"
      JSON.parse(out.lines.first)
    end

    # Its output goes to `log`, by default in the folder.
    def start(*arguments, command: "start", log: nil, **variables)
      @log = log || @log
      pid = Process.spawn(environment.merge(variables.transform_keys(&:to_s)), BINARY, command, *arguments,
                          chdir: @folder, %i[out err] => [@log, "a"])
      @engines << pid
      pid
    end

    def signal(pid, name)
      Process.kill(name, pid)
      @engines.delete(pid)
      Process.wait2(pid).last
    end

    def finish
      @engines.dup.each { |pid| signal(pid, "TERM") }
    end

    def log
      File.exist?(@log) ? File.read(@log) : ""
    end

    # Until the block returns something true. For what no command waits for.
    def until
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LIMIT
      loop do
        found = yield and return found
        Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline or raise "it has not happened in time\n#{log}"
        sleep 0.02
      end
    end

    private

    def environment
      { "TASK_ENGINE_DATABASE_URL" => @database, "TASK_ENGINE_LOG" => "info", "TASK_ENGINE_CONNECT" => nil }
    end
  end

  def with_worker(*command, **options)
    worker = WorkerProcess.new(*command, **options)
    yield worker
  ensure
    worker&.kill
  end

  # A worker of this Ruby code.
  def with_code(code, &)
    Dir.mktmpdir do |folder|
      path = File.join(folder, "worker.rb")
      File.write(path, "require \"task_engine\"\n#{code}\n")
      with_worker("ruby", "-I#{LIB}", path, &)
    end
  end

  def with_site(**options)
    Dir.mktmpdir do |folder|
      site = Site.new(folder, **options)
      begin
        yield site
      ensure
        site.finish
      end
    end
  end
end
