#!/bin/sh
# Of both formats: dpkg calls it with "configure", rpm with how many versions there are.
set -e
getent group tributary >/dev/null || groupadd --system tributary
getent passwd tributary >/dev/null ||
  useradd --system --gid tributary --home-dir /var/lib/tributary --no-create-home --shell /usr/sbin/nologin tributary
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # What runs goes on with the new version, without a gap if that can be; what does not run is left to whoever installs it.
  if systemctl is-active --quiet tributary.service; then
    # The variable may name another instance, and would come before the configuration of this one.
    env -u TRIBUTARY_ADMIN tributary upgrade -c /etc/tributary/tributary.yaml || systemctl try-restart tributary.service
  fi
fi
