#!/usr/bin/env bash
# Make sure bubblewrap, ripgrep and git are there; as root also the user that boxes run as.
# With the argument `test`, also a Chromium for the page's tests, a keyring for those of keys, Node, npm and a C compiler for those of
# what a developer does, systemd's own judge of units, a kernel for those of limits, and an ssh server, which is not left running.
# Not root: print the one line to type, and go on (lodger doctor says what is missing).
set -u
missing=()
new_sshd=
[ -x /usr/bin/bwrap ] || missing+=(bubblewrap)
command -v rg > /dev/null || missing+=(ripgrep)
command -v git > /dev/null || missing+=(git)
if [ "${1:-}" = test ] && [ -z "${LODGER_CHROMIUM:-}" ]; then
  command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null \
    || missing+=(chromium)
fi
if [ "${1:-}" = test ] && [ "$(uname)" = Linux ]; then
  command -v gnome-keyring-daemon > /dev/null || missing+=(gnome-keyring)
  command -v dbus-daemon > /dev/null || missing+=(dbus)
  # Tests of ports run a development server in a box, those of real work what a developer has.
  command -v node > /dev/null || missing+=(nodejs)
  command -v npm > /dev/null || missing+=(npm)
  command -v curl > /dev/null || missing+=(curl)
  # Numbers of system calls are compared with the kernel's own headers, which a C library's are never without.
  if ! command -v gcc > /dev/null || ! [ -e /usr/include/asm-generic/unistd.h ]; then
    missing+=(gcc)
    if command -v apt-get > /dev/null; then missing+=(libc6-dev); fi
  fi
  # Not as what starts the machine: the package alone changes nothing of that.
  command -v systemd-analyze > /dev/null || missing+=(systemd)
  if ! PATH="$PATH:/usr/sbin:/sbin" command -v ip > /dev/null; then
    if command -v dnf > /dev/null; then missing+=(iproute); else missing+=(iproute2); fi
  fi
  # Tests of control groups start a kernel that has them.
  command -v linux.uml > /dev/null || missing+=(user-mode-linux)
  # Tests of git over ssh start an sshd of their own.
  if ! PATH="$PATH:/usr/sbin" command -v sshd > /dev/null; then
    if command -v pacman > /dev/null; then missing+=(openssh); else missing+=(openssh-server); fi
    new_sshd=1
  fi
fi
# As root, boxes run as a user of their own; setfacl is how it is let into a folder of the person's.
[ "$(id -u)" != 0 ] || command -v setfacl > /dev/null || missing+=(acl)

if [ "$(uname)" = Linux ] && [ ${#missing[@]} -gt 0 ]; then
  if command -v apt-get > /dev/null; then
    install="apt-get install --yes ${missing[*]}"
  elif command -v dnf > /dev/null; then
    install="dnf install --assumeyes ${missing[*]}"
  elif command -v pacman > /dev/null; then
    install="pacman -S --noconfirm ${missing[*]}"
  else
    install="your package manager to install: ${missing[*]}"
  fi
  if [ "$(id -u)" = 0 ]; then
    echo "Installing ${missing[*]}"
    log=$(mktemp)
    if command -v apt-get > /dev/null; then apt-get update > "$log" 2>&1; fi
    # Debian starts a server as it installs it; nobody asked for one that others can log in to.
    [ -z "$new_sshd" ] || ! command -v systemctl > /dev/null || systemctl mask ssh.service ssh.socket > /dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive $install >> "$log" 2>&1
    failed=$?
    if [ -n "$new_sshd" ] && command -v systemctl > /dev/null; then
      systemctl unmask ssh.service ssh.socket > /dev/null 2>&1
      systemctl disable ssh.service ssh.socket > /dev/null 2>&1
    fi
    if [ "$failed" != 0 ]; then
      tail -n 20 "$log"
      echo "Could not install ${missing[*]}. Install them yourself, then try again."
      exit 1
    fi
    rm -f "$log"
  else
    echo "Lodger needs ${missing[*]}. Type this once: sudo $install"
    [ -z "$new_sshd" ] || echo "Tests alone need the ssh server; where it was started: sudo systemctl disable --now ssh"
  fi
fi

if [ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ] && ! id lodger > /dev/null 2>&1; then
  echo "Making the system user lodger (boxes run as it, never as root)"
  useradd --system --no-create-home --shell /usr/sbin/nologin lodger
fi
exit 0
