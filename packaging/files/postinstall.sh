#!/bin/sh
# Of both formats: dpkg calls it with "configure", rpm with how many versions there are.
set -e
getent group tributary >/dev/null || groupadd --system tributary
getent passwd tributary >/dev/null ||
  useradd --system --gid tributary --home-dir /var/lib/tributary --no-create-home --shell /usr/sbin/nologin tributary
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # What runs goes on with the new version; what does not is left to whoever installs it.
  systemctl try-restart tributary.service
fi
