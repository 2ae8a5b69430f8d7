#!/bin/sh
# Of both formats: dpkg calls it with "configure", rpm with how many versions there are.
set -e
getent group tributary >/dev/null || groupadd --system tributary
getent passwd tributary >/dev/null ||
  useradd --system --gid tributary --home-dir /var/lib/tributary --no-create-home --shell /usr/sbin/nologin tributary
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # A running service restarts with the new version. A service that does not run is left to whoever installs it.
  systemctl try-restart tributary.service
fi
