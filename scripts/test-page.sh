#!/usr/bin/env bash
# The page's unit tests (hub/web/tests), in Node's own runner. Bundled first, as the page is.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/page-node.sh"
cd "$root/hub/web"
node node_modules/typescript/bin/tsc --noEmit --project tests
node node_modules/vite/bin/vite.js build --config tests/vite.config.ts --logLevel warn
node --test --test-reporter=tap node_modules/.tests/*.test.js
