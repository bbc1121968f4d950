#!/usr/bin/env bash
# Print a Python that really runs and is new enough. A name on the PATH proves little: version managers put stubs there.
for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; then
    command -v "$candidate"
    exit 0
  fi
done
exit 1
