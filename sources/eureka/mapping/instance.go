package mapping

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry/entry"
)

// Endpoint is where a service can be called.
type Endpoint struct {
	Address  string // an IP address, or a host
	Port     uint32
	Labels   map[string]string
	Locality string
	Instance Instance // whose it is; empty if that is not known
}

// Instance is what an instance is known by: short, and of letters and digits, whatever it calls itself.
type Instance string

// InstanceOf returns that of an instance, of which nobody can make another one.
func InstanceOf(key wire.Key) Instance {
	sum := sha256.Sum256([]byte(key.App + "\x00" + key.ID))
	return Instance(base64.RawURLEncoding.EncodeToString(sum[:12]))
}

// Compare orders endpoints. Those that compare equal are the same endpoint.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

// Same reports whether nothing is different.
func (e Endpoint) Same(o Endpoint) bool {
	return e.Compare(o) == 0 && e.Instance == o.Instance && e.Locality == o.Locality && maps.Equal(e.Labels, o.Labels)
}

// Offer is what one instance is for one port of one host.
type Offer struct {
	ID       ID
	Secure   bool
	Endpoint Endpoint
	wanted   uint32 // port on which clients are to find the service; 0 if it does not say
	protocol string // Istio's
}

// Offers returns what an instance offers, whether it is served or not, and what is wrong with it. An error says why it cannot be called at
// all.
func (m *Mapper) Offers(i wire.Instance) (offers []Offer, warnings []string, err error) {
	address, warnings, err := m.addressOf(i)
	if err != nil {
		return nil, nil, err
	}
	labels := map[string]string{}
	for _, key := range m.o.LabelMeta {
		if value := i.Metadata[key]; names.IsLabelText(value) {
			labels[key] = value
		}
	}
	locality, instance := m.localityOf(i), InstanceOf(i.Key)
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
			is, wanted = m.protocolOf(i), portOf(i.Metadata[m.o.ServicePortMeta])
		}
		vips, warned := vipsOf(one.vips, i.App)
		warnings = append(warnings, warned...)
		for _, vip := range vips {
			offers = append(offers, Offer{
				ID: m.idOf(vip.name, i.App), Secure: one.secure, wanted: cmp.Or(wanted, vip.port), protocol: is,
				Endpoint: Endpoint{Address: address, Port: uint32(one.port.Number), Labels: labels, Locality: locality, Instance: instance}, //nolint:gosec // up to 65535
			})
		}
	}
	if len(offers) == 0 {
		return nil, warnings, fmt.Errorf("none of its ports is enabled")
	}
	// Two of its names may be one host.
	slices.SortStableFunc(offers, compareOffers)
	return slices.CompactFunc(offers, func(a, b Offer) bool { return compareOffers(a, b) == 0 }), warnings, nil
}

// IDs are what the hosts of an instance are told apart by, whether it can be called or not.
func (m *Mapper) IDs(i wire.Instance) (all []ID) {
	for _, list := range []string{i.VIP, i.SecureVIP} {
		vips, _ := vipsOf(list, i.App)
		for _, v := range vips {
			if id := m.idOf(v.name, i.App); !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

func compareOffers(a, b Offer) int {
	plainFirst := func(o Offer) string { return strconv.FormatBool(o.Secure) }
	return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(plainFirst(a), plainFirst(b)))
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

// RestoredID returns the ID of what was restored, as the template tells hosts apart now. Where another template did not tell applications
// apart, the first one stands for all; where it did not tell anything else apart, an application is called by its name, as is usual.
func (m *Mapper) RestoredID(s Service) ID {
	app := s.ID.App
	if app == "" && len(s.Apps) > 0 {
		app = s.Apps[0]
	}
	return m.idOf(cmp.Or(s.ID.VIP, app), app)
}

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
		if host, port, err := net.SplitHostPort(one); err == nil && host != "" && portOf(port) != 0 {
			v = vip{host, portOf(port)}
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

func portOf(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(n)
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

// PortOf returns the port of a service, given all that is offered for it, served or not: it depends on nothing else, so that all replicas
// have the same one. If nothing is offered it is what it was before, which is zero if it was none.
func (m *Mapper) PortOf(offers []Offer, before Port) Port {
	configured := 0
	if len(offers) > 0 {
		configured = m.o.ServicePort
		if offers[len(offers)-1].Secure {
			configured = m.o.SecureServicePort
		}
	}
	ports := entry.NewPorts(configured)
	for _, o := range offers {
		ports.Add(o.Endpoint.Port, o.wanted, o.protocol)
	}
	return ports.Port(before)
}

// protocolOf returns Istio's name of the protocol of an instance's plain port.
func (m *Mapper) protocolOf(i wire.Instance) string {
	return entry.Protocol(i.Metadata[m.o.ProtocolMeta], m.o.DefaultProtocol)
}
