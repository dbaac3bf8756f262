#!/usr/bin/env python3
"""{"text": "one two two"} in, {"words": 3, "different": 2} out."""
import json
import sys

parameters = json.load(sys.stdin)
text = parameters.get("text")
if not isinstance(text, str):
    print("text is missing", file=sys.stderr)
    sys.exit(100)  # do not retry

words = text.split()
print(f"{len(words)} words", file=sys.stderr)  # the log
json.dump({"words": len(words), "different": len(set(words))}, sys.stdout)
