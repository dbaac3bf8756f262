# frozen_string_literal: true

module TaskEngine
  VERSION = "0.1.0"
end
