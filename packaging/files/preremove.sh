#!/bin/sh
# dpkg calls it with "remove" or "upgrade", rpm with 0 or 1.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl stop tributary.socket tributary.service
  fi
  if command -v systemctl >/dev/null; then
    systemctl --quiet disable tributary.socket tributary.service
  fi
  ;;
esac
