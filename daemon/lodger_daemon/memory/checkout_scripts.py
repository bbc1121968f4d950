"""What runs inside the box, on the checkout. Each is one `sh -c` with arguments; it answers with one line, a word and
maybe more. Whatever an agent planted there runs in its own box, where the agent could run it anyway."""

from typing import Final

_PRE_COMMIT: Final = """#!/bin/sh
# Quick advice before a commit; the same rules are applied again before it is published.
program=/run/lodger/validator/hook.py
[ -f "$program" ] && command -v python3 >/dev/null 2>&1 || exit 0
exec python3 -I -S -B "$program"
"""

PRE_PUSH: Final = """#!/bin/sh
echo "There is nothing to push here: a commit on main is published when the command that made it returns." >&2
exit 1
"""


def pre_commit(shared: bool) -> str:
    """The hook of a checkout: of a memory that agents share, or of an agent's own."""
    return _PRE_COMMIT.replace('"$program"\n', '"$program" --shared\n') if shared else _PRE_COMMIT


_UNDO: Final = r"""
# An update that was killed, or for whose files there was no room, leaves some of them written and others not. What it
# wrote stands in the commit it was going to, whole or cut short, so nothing is lost by putting back what was there.
undo() {
    git diff-tree -r -z --raw --no-renames --diff-filter=AM "$1" "$2" 2>/dev/null | xargs -0 -r -n 1000 sh -c '
    begins() { git cat-file blob "$1" 2>/dev/null | head -c "$size" | cmp -s - "$path"; }
    while [ $# -gt 1 ]; do
        new=${1% *} new=${new##* } path=$2
        shift 2
        [ -f "$path" ] && [ ! -L "$path" ] || continue
        was=$(git rev-parse -q --verify ":$path")
        [ "$was" = "$new" ] && continue
        size=$(($(wc -c <"$path"))) || continue
        begins "$new" || { [ -n "$was" ] && begins "$was"; } || continue
        if [ -n "$was" ]; then git checkout-index -q -f -u -- "$path"; else rm -f -- "$path"; fi
    done' sh
    git update-index -q --refresh >/dev/null 2>&1
}
undo_interrupted() {
    if read -r was_old was_new 2>/dev/null <.git/lodger-updating; then undo "$was_old" "$was_new"; fi
    rm -f .git/lodger-updating
}
"""

_INSTALL: Final = r"""
set -u
cd "$1" 2>/dev/null || { echo no_folder; exit 0; }
commit=$2
[ ! -e .git ] || [ -d .git ] || { echo failed .git is not a folder; exit 0; }
for name in HEAD config packed-refs index refs/heads/main; do
    [ ! -e ".git/$name" ] || [ -f ".git/$name" ] || { echo "failed .git/$name is not a plain file"; exit 0; }
done
if [ -e .git/HEAD ] && git rev-parse -q --verify refs/heads/main >/dev/null 2>&1; then echo present; exit 0; fi
template=$(mktemp -d) && mkdir "$template/hooks" || { echo failed no temporary folder; exit 0; }
printf '%s' "$5" >"$template/hooks/pre-commit"
printf '%s' "$6" >"$template/hooks/pre-push"
chmod 755 "$template/hooks/pre-commit" "$template/hooks/pre-push"
git init -q -b main --template="$template" . >&2 || { echo failed git init; exit 0; }
rm -rf "$template"
git config core.autocrlf false
git config core.eol lf
git config user.name "$3"
git config user.email "$4"
git config commit.gpgsign false
git config remote.origin.url .
git config branch.main.remote origin
git config branch.main.merge refs/heads/main
rm -f .git/index.lock
git index-pack --stdin >/dev/null || { echo failed objects did not arrive; exit 0; }
[ -n "$commit" ] || { echo received; exit 0; }
git symbolic-ref HEAD refs/heads/main
undo_interrupted
git read-tree -n -m -u "$commit" >&2 || { echo in_the_way files already there; exit 0; }
empty=$(git hash-object -t tree /dev/null)
printf '%s %s\n' "$empty" "$commit" >.git/lodger-updating || { echo failed no room on the disk; exit 0; }
git read-tree -m -u "$commit" >&2 || { undo_interrupted; echo failed its files could not all be written; exit 0; }
printf 'create refs/heads/main %s\n' "$commit" | git update-ref --stdin || { echo failed to name the commit; exit 0; }
rm -f .git/lodger-updating
echo installed
"""

INSTALL: Final = _UNDO + _INSTALL

RECEIVE: Final = r"""
set -u
cd "$1" 2>/dev/null || { echo no_folder; exit 0; }
if [ -n "$3" ]; then git index-pack --stdin >/dev/null; else git unpack-objects -q >&2; fi \
    || { echo failed objects did not arrive; exit 0; }
[ -z "$2" ] || git update-ref refs/lodger/theirs "$2" || { echo failed to name the other side; exit 0; }
echo received
"""

_UPDATE: Final = r"""
set -u
cd "$1" 2>/dev/null || { echo no_folder; exit 0; }
old=$2 new=$3
[ "$(git rev-parse -q --verify refs/heads/main)" = "$old" ] || { echo moved; exit 0; }
for name in rebase-merge rebase-apply sequencer MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG \
    refs/heads/main.lock HEAD.lock; do
    [ ! -e ".git/$name" ] || { echo "busy $name"; exit 0; }
done
if [ "$(git symbolic-ref -q HEAD)" != refs/heads/main ]; then
    printf 'start\nupdate refs/heads/main %s %s\nprepare\ncommit\n' "$new" "$old" | git update-ref --stdin >/dev/null \
        || { echo moved; exit 0; }
    echo updated elsewhere
    exit 0
fi
if [ -e .git/index.lock ]; then
    for comm in /proc/[0-9]*/comm; do
        read -r name <"$comm" 2>/dev/null && [ "$name" = git ] && { echo busy index.lock; exit 0; }
    done
    age=$(( $(date +%s) - $(stat -c %Y .git/index.lock 2>/dev/null || date +%s) ))
    [ "$age" -gt 2 ] || { echo busy index.lock; exit 0; }
    rm -f .git/index.lock
fi
undo_interrupted
blocked=$(xargs -0 -r sh -c '
for path; do
    if [ -e "$path" ] || [ -L "$path" ]; then printf "%s\n" "$path"; continue; fi
    above=$path
    while [ "$above" != "${above%/*}" ]; do
        above=${above%/*}
        if [ -L "$above" ] || { [ -e "$above" ] && [ ! -d "$above" ]; }; then printf "%s\n" "$above"; break; fi
    done
done' sh | head -n 12)
[ -z "$blocked" ] || { printf 'in_the_way %s\n' "$(printf '%s' "$blocked" | tr '\n' ' ')"; exit 0; }
git read-tree -n -m -u "$old" "$new" >&2 || { echo in_the_way changed files; exit 0; }
printf '%s %s\n' "$old" "$new" >.git/lodger-updating || { echo busy no room on the disk; exit 0; }
git read-tree -m -u "$old" "$new" >&2 || { undo_interrupted; echo busy its files could not all be written; exit 0; }
printf 'start\nupdate HEAD %s %s\nprepare\ncommit\n' "$new" "$old" | git update-ref --stdin >/dev/null \
    || { echo moved; exit 0; }
rm -f .git/lodger-updating
echo updated
"""

UPDATE: Final = _UNDO + _UPDATE
