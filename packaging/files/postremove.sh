#!/bin/sh
# The state stays, and whose it is, until dpkg --purge.
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/tributary
  if getent passwd tributary >/dev/null; then userdel tributary; fi
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
