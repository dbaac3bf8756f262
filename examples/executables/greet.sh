#!/bin/sh
# {"name": "Ada"} in, {"greeting": "Hello, Ada!"} out.
set -eu
name=$(sed -n 's/.*"name"[[:space:]]*:[[:space:]]*"\([^"\\]*\)".*/\1/p' | head -n 1)
if [ -z "$name" ]; then
  echo "whom shall I greet? give {\"name\": \"Ada\"}" >&2
  exit 100 # the same parameters will not be better next time
fi
echo "greeting $name, attempt $TASK_ENGINE_ATTEMPT" >&2
printf '{"greeting": "Hello, %s!"}\n' "$name"
