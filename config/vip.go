package config

import (
	"net/netip"

	"tributary/sources/vip"
)

// VIPsOff is the value of VirtualAddresses that says that there are none.
const VIPsOff = "off"

// VIPs returns the range of virtual addresses; ok is false if there are none.
func (c *Config) VIPs() (prefix netip.Prefix, ok bool) {
	switch c.VirtualAddresses {
	case VIPsOff:
		return netip.Prefix{}, false
	case "":
		return vip.Default, true
	}
	prefix, err := netip.ParsePrefix(c.VirtualAddresses)
	return prefix, err == nil
}

// checkVIPs notes what is wrong with a range of virtual addresses.
func (d *decoder) checkVIPs(s string) {
	if s == "" || s == VIPsOff {
		return
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		d.problem("virtualAddresses", "want a range such as %s, or off, got %q", vip.Default, s)
		return
	}
	if _, err := vip.New(prefix); err != nil {
		d.problem("virtualAddresses", "%v", err)
	}
}
