#!/bin/bash
# PID 1 of a small container of namespaces: prepares mounts, starts the play in the background, becomes systemd.
#     systemd_container.sh SCRATCH PYTHON PLAY PATH...
# The PATHs are made reachable for every user. Nothing outside SCRATCH is written: /etc and /var/lib are overlays.
set -eu
[ $$ = 1 ] || { echo "only as the first process of a container"; exit 1; }
scratch=$1 python=$2 play=$3
shift 3
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs "$scratch"
for folder in etc var/lib; do
  mkdir -p "$scratch/$folder/upper" "$scratch/$folder/work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$scratch/$folder/upper,workdir=$scratch/$folder/work" "/$folder"
done
for folder in /etc /var/lib; do [ "$(stat -f -c %T "$folder")" = overlayfs ]; done
rm -rf /etc/systemd/system /var/lib/lodger /var/lib/lodger-home /etc/lodger
mkdir -p /etc/systemd/system
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
ip link set lo up

number=0 closed=()
for path in "$@"; do
  above=$path
  while [ "$above" != / ]; do
    above=$(dirname "$above")
    if [ $((8#$(stat -c %a "$above") & 1)) = 0 ]; then closed+=("$above"); fi
  done
  number=$((number + 1))
  mkdir -p "$scratch/hold/$number"
  mount --bind "$path" "$scratch/hold/$number"
done
for folder in "${closed[@]}"; do mount -t tmpfs -o mode=755 tmpfs "$folder" 2> /dev/null || true; done
number=0
for path in "$@"; do
  number=$((number + 1))
  mkdir -p "$path"
  mount --bind "$scratch/hold/$number" "$path"
done

# As on a real machine, where systemd does it unless it is in a container: what it mounts for a unit's credentials has to
# reach the unit. Private to the outside all the same.
mount --make-rshared /
mkdir -p /run/lock /run/units
for target in default sysinit basic shutdown multi-user network-online; do
  printf '[Unit]\nDefaultDependencies=no\n' > "/run/units/$target.target"
done
printf '[Unit]\nDefaultDependencies=no\n[Slice]\n' > /run/units/system.slice
export container=lodger SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units
export SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
"$python" "$play" &
exec /lib/systemd/systemd --system --unit=default.target --show-status=no --log-level=warning --log-target=console
