#!/usr/bin/env bash
# Builds the page into hub/lodger_hub/page, where the hub finds it and the wheel carries it. Needs Node 20 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../hub/web"

if ! command -v npm >/dev/null || ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)'; then
  echo "Building the page needs Node 20 or newer with npm. Everything else of Lodger works without the page." >&2
  exit 1
fi
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --ignore-scripts --silent
fi
npm run --silent check
npm run --silent build -- --logLevel warn
test -s ../lodger_hub/page/index.html
