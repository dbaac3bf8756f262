#!/usr/bin/env ruby
# {"text": "abc"} in, {"sha256": "ba7816bf…"} out.
require "digest"
require "json"

parameters = JSON.parse($stdin.read)
text = parameters["text"]
unless text.is_a?(String)
  warn "text is missing"
  exit 100 # do not retry
end
warn "#{text.bytesize} bytes"
puts JSON.generate(sha256: Digest::SHA256.hexdigest(text))
