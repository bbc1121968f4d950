#!/usr/bin/env bash
# Builds the page into hub/lodger_hub/page, where the hub finds it and the wheel carries it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/page-node.sh"
cd "$root/hub/web"
node node_modules/typescript/bin/tsc --noEmit
node node_modules/vite/bin/vite.js build --logLevel warn
test -s ../lodger_hub/page/index.html
