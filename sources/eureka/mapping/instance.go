package mapping

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// InstanceOf returns what an instance is known by: short, and of letters and digits, whatever it calls itself. Nobody can make another one
// of the same.
func InstanceOf(key wire.Key) string {
	sum := sha256.Sum256([]byte(key.App + "\x00" + key.ID))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Offers returns what an instance offers, whether it is served or not, and what is wrong with it. An error says why it cannot be called at
// all.
func (m *Mapper) Offers(i wire.Instance) (offers []registry.Offer[ID], warnings []string, err error) {
	address, warnings, err := m.addressOf(i)
	if err != nil {
		return nil, nil, err
	}
	e := registry.Endpoint{Address: address, Locality: m.localityOf(i), Instance: InstanceOf(i.Key), Labels: m.o.Labels(i.Metadata)}
	state, why := registry.Listed, ""
	if !m.Serves(i) {
		if state, why = registry.Disabled, "status "+i.Status; i.Overridden != wire.Unknown && i.Overridden != i.Status {
			why += ", set to " + i.Overridden
		}
	}
	for _, one := range []struct {
		secure bool
		port   wire.Port
		vips   string
	}{{false, i.Port, i.VIP}, {true, i.SecurePort, i.SecureVIP}} {
		if !one.port.Enabled {
			continue
		}
		is, wanted := string(protocol.HTTPS), uint32(0)
		if !one.secure {
			is, wanted = m.o.Protocol(i.Metadata[m.o.ProtocolMeta]), m.o.WantedPort(i.Metadata)
		}
		vips, warned := vipsOf(one.vips, i.App)
		warnings = append(warnings, warned...)
		for _, vip := range vips {
			id := m.idOf(vip.name, i.App)
			id.Secure, e.Port = one.secure, uint32(one.port.Number) //nolint:gosec // up to 65535
			offers = append(offers, registry.Offer[ID]{
				ID: id, Owner: i.App, Endpoint: e, State: state, Why: why, Port: cmp.Or(wanted, vip.port), Protocol: is,
			})
		}
	}
	if len(offers) == 0 {
		return nil, warnings, fmt.Errorf("none of its ports is enabled")
	}
	// Two of its names may be one host.
	slices.SortStableFunc(offers, compareOffers)
	return slices.CompactFunc(offers, func(a, b registry.Offer[ID]) bool { return compareOffers(a, b) == 0 }), warnings, nil
}

func compareOffers(a, b registry.Offer[ID]) int { return a.ID.Compare(b.ID) }

// Groups are those of the hosts of an instance, whether it can be called or not.
func (m *Mapper) Groups(i wire.Instance) (all []string) {
	for _, list := range []string{i.VIP, i.SecureVIP} {
		vips, _ := vipsOf(list, i.App)
		for _, v := range vips {
			if group := m.idOf(v.name, i.App).Group(); !slices.Contains(all, group) {
				all = append(all, group)
			}
		}
	}
	return all
}

// Serves reports whether an instance is to be called. Its status has been overridden already by who lists it; what somebody took out of
// service counts even if it has not.
func (m *Mapper) Serves(i wire.Instance) bool {
	serves := func(status string) bool { return slices.Contains(m.o.Statuses, status) }
	off := i.Overridden == wire.Down || i.Overridden == wire.OutOfService
	return serves(i.Status) && (!off || serves(i.Overridden))
}

// MayServe reports whether an instance of which not all can be read may be to be called: its status does not say that it is not.
func (m *Mapper) MayServe(i wire.Instance) bool { return i.Status == wire.Unknown || m.Serves(i) }

func (m *Mapper) idOf(vip, app string) (id ID) {
	if strings.Contains(m.o.HostTemplate, "{vip}") {
		id.VIP = vip
	}
	if strings.Contains(m.o.HostTemplate, "{app}") {
		id.App = strings.ToLower(app)
	}
	return id
}

// addressOf returns where an instance is called: where the settings say, or where else it says that it is, with a warning if it said
// something else first.
func (m *Mapper) addressOf(i wire.Instance) (address string, warnings []string, err error) {
	first, second := i.IP, i.HostName
	if m.o.AddressFrom == fromHostName {
		first, second = second, first
	}
	if address, err = names.Address(first); err == nil {
		return address, nil, nil
	}
	err = fmt.Errorf("address %q: %w", first, err)
	other, otherErr := names.Address(second)
	switch {
	case otherErr != nil:
		return "", nil, err
	case first != "":
		warnings = []string{fmt.Sprintf("%v: it is called at %s instead", err, other)}
	}
	return other, warnings, nil
}

// maxVIPs is how many names one instance may have.
const maxVIPs = 32

type vip struct {
	name string
	port uint32 // that it names; 0 if it does not
}

// vipsOf reads a list of virtual addresses, which have no case. Some have a port behind them. A placeholder that nobody filled in is no
// name, and who has no name has that of its application.
func vipsOf(list, app string) (vips []vip, warnings []string) {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.ToLower(strings.TrimSpace(one))
		if one == "" {
			continue
		}
		if strings.Contains(one, "${") {
			warnings = append(warnings, fmt.Sprintf("virtual address %q has a placeholder that its client did not fill in", one))
			continue
		}
		v := vip{name: one}
		if host, port, err := net.SplitHostPort(one); err == nil && host != "" && registry.ParsePort(port) != 0 {
			v = vip{host, registry.ParsePort(port)}
		}
		if slices.ContainsFunc(vips, func(other vip) bool { return other.name == v.name }) {
			continue
		}
		if len(vips) == maxVIPs {
			return vips, append(warnings, fmt.Sprintf("it has more than %d virtual addresses", maxVIPs))
		}
		vips = append(vips, v)
	}
	if len(vips) == 0 {
		vips = []vip{{name: strings.ToLower(app)}}
	}
	return vips, warnings
}

// amazonZone is a zone whose region is in its name.
var amazonZone = regexp.MustCompile(`^([a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]$`)

// localityOf returns the region and zone of an instance. A zone of which nobody knows the region is in one of its name.
func (m *Mapper) localityOf(i wire.Instance) string {
	text := func(s string) string {
		if !names.IsLabelText(s) {
			return ""
		}
		return s
	}
	zone := cmp.Or(text(i.Metadata["zone"]), text(i.DataCenterZone))
	region := text(i.Metadata["region"])
	if amazon := amazonZone.FindStringSubmatch(zone); region == "" && amazon != nil {
		region = amazon[1]
	}
	region = cmp.Or(region, m.o.Region)
	switch {
	case zone == "":
		return text(i.Metadata["region"])
	case region == "":
		return zone
	}
	return region + "/" + zone
}
