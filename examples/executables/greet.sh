#!/bin/sh
# {"name": "Ada"} in, {"greeting": "Hello, Ada!"} out.
set -eu
name=$(sed -n 's/.*"name"[[:space:]]*:[[:space:]]*"\([^"\\]*\)".*/\1/p' | head -n 1)
if [ -z "$name" ]; then
  echo "name is missing: pass {\"name\": \"Ada\"}" >&2
  exit 100 # do not retry: the parameters stay the same
fi
echo "greeting $name, attempt $TASK_ENGINE_ATTEMPT" >&2
printf '{"greeting": "Hello, %s!"}\n' "$name"
